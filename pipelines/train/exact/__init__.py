"""Strategy `exact`: weights that are the same bit for bit for any number of workers.

1. `exact`             runs one pass per shard; `settings` is the section of the config.
2. `gradient_reducer`  sums gradients in the tree of `train.reduce`, during the passes.
3. `deterministic`     rejects layers and kernels that are not; other reproducible strategies use it too.
"""

"""Strategy `exact`: weights that are the same bit for bit for any number of workers.

1. `exact`             runs one pass per shard, and rejects layers and kernels that are not deterministic, for other reproducible strategies
                       too; `settings` is the section of the config.
2. `gradient_reducer`  sums gradients in the tree of `train.ordered_all_reduce`, during the passes.
"""

"""Parallel training strategies: everything in a training step that depends on parallelism. Independent of storage and tracking.

1. `strategies`  the one that a config names, of the table in `config.strategies`, and the model that it begins with.
   `strategy`    is their interface; `step` contains the flags and the result of a step.
2. `mesh`        which rows a worker computes.
3. `ddp`         one pass over a worker's rows; `batch_norm` is over the rows of all workers.
   `exact`       a pass per shard; `gradient_reducer` sums gradients, as passes give them, in the tree of `collectives`;
                 `deterministic` refuses what cannot be exact.
   `buffers`     keeps the model's buffers, such as batch norm's statistics, equal on all workers.
   `randomness`  seeds torch by step and shard; `precision` is that of the forward pass.
4. `update`      divides and clips gradients and steps the `optimizer`, for every strategy.
"""

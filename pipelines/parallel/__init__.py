"""Who computes what: everything that parallelism changes of a training step. Knows no storage and no tracking.

1. `strategies`  the one that a config names, of the table in `config.strategies`, and the model that it begins with.
   `strategy`    what the loop asks of each; `step` is what a step takes beside rows, and its result.
2. `mesh`        which rows a worker computes.
3. `ddp`         one pass over a worker's rows; `batch_norm` is over the rows of all workers.
   `exact`       a pass per shard; `gradient_reducer` sums gradients, as passes give them, in the tree of `collectives`;
                 `deterministic` refuses what cannot be exact.
   `buffers`     are the model's, such as batch norm's statistics: all workers get one value.
   `randomness`  is a function of step and shard; `precision` is that of the forward pass.
4. `update`      what follows, alike for every strategy: divide, clip, step, with an `optimizer`.
"""

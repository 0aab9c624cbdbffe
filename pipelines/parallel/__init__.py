"""Who computes what: everything that parallelism changes of a training step. Knows no storage and no tracking.

1. `strategy`          what the loop asks of a strategy, and the table of those there are.
2. `mesh`              which shards a worker computes.
3. `ddp`               a pass over the worker's rows; `batch_norm` over the rows of all workers.
   `exact`             a pass per shard; `gradient_reducer` brings gradients, as passes give them, into the tree of
                       `collectives`; `deterministic` refuses what cannot be exact.
   `buffers`           are the model's, such as batch norm's statistics: how they come to one value.
   `randomness`        is a function of step and shard; `precision` is that of the forward pass.
4. `update`            what follows, alike for every strategy: divide, clip, step, by an `optimizer`.
"""

"""Parallel training strategies: everything in a training step that depends on parallelism. Independent of storage and tracking.

1. `strategies`  creates the strategy that a config names, from the table in `config.strategies`, with its initial model.
   `strategy`    is the interface; `step` defines the flags and the result of a step.
2. `mesh`        maps workers to rows.
3. The strategies: `ddp` has one model per worker and one pass; `exact` one pass per shard, with sums in a fixed order; `local` has
   replicas that take steps of their own; `sharded` spreads one model over workers.
4. `passes`      runs a shard's forward passes; `precision` sets their dtype, `randomness` seeds them by step and shard.
   `buffers`     keeps the model's buffers, such as batch norm's statistics, equal on all workers; `batch_norm` normalises over the
                 rows of all workers, and `single_rows` refuses it where a pass would have one row.
   `update`      divides and clips gradients and steps the `optimizer`, for all.
   `step_clock`  measures where the time of a step goes.
5. `inference`   predicts and samples, for all.
"""

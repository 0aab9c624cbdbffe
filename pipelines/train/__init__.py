"""Trains a task's model on a dataset version, on all workers together. Independent of Ray: torchrun can run it.

From a batch to new weights:

1. `loop`             is the loop of every strategy: it takes steps, and acts where all workers agree on the state of the run. `run_context`
                      is what loop and strategy share: the state of the run, and its callbacks.
2. `strategy`         takes a step for every batch: forward, backward, exchange and update. `ddp` has one model per worker and one pass;
                      `exact` one pass per shard, with sums in a fixed order. `mesh` maps workers to rows.
3. `passes`           runs forward passes, sets their dtype, and seeds them by step and shard.
4. `reduce`           sums over workers, in a tree that is the same for any number of workers.
5. `update`           scales and clips gradients, and steps one of the `optimizers`, at the rate of the step.
6. `step_statistics`  has flags, result and sums of steps, read from the device a few steps at a time; `finite` rejects NaN and infinite
                      values. `step_clock` measures where their time goes; `shard_balancer` deals shards to workers in proportion to their
                      speed.

Around the steps:

7. `initial_model`    is the model before the first one, whose weights may be from elsewhere; `fine_tuning` freezes parameters, gives others
                      a rate of their own, and adapts layers.
8. `buffers`          keeps the model's buffers, such as batch norm's statistics, equal on all workers; `batch_norm` normalises over the
                      rows of all workers, or by statistics that stay; `single_rows` refuses it where a pass would have one row.
9. `epochs`           compares each epoch with the best, by what `evaluate` measures on a split, with every row once; `trivial_baseline`
                      fits the predictors that the model must beat, and remarks on metrics if it does not.
10. `saver`           saves the state when that is due, as a `checkpoint`, and resumes from it.
"""

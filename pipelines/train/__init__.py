"""Trains a task's model on a dataset version, on all workers together. Independent of Ray: torchrun can run it.

From a batch to new weights:

1. `loop`              is the loop of every strategy: it takes steps, validates, and acts where all workers agree on the state of the run.
                       `run_context` is what loop and strategy share: the state of the run, and its callbacks.
2. `strategy`          is the interface of a step: forward, backward, exchange and update. `ddp` has one model per worker and one pass;
                       `exact` one pass per shard, with sums in a fixed order. `workers` says which rows each computes.
3. `passes`            runs forward passes, sets their dtype, and seeds them by step and shard.
4. `ordered_all_reduce` sums over workers, in a tree that is the same for any number of workers; `dtensor` has what tensors need of which
                       every worker holds a part.
5. `optimizers`        scales and clips gradients, and steps the optimizer, at the `learning_rate` of the step.
6. `step_statistics`   has flags, result and sums of steps, read from the device a few steps at a time, and rejects NaN and infinite values.
                       `step_clock` measures where their time goes; `shard_balancer` deals shards to workers in proportion to their speed.

Around the steps:

7. `initial_model`     is the model before the first one, whose weights may be from elsewhere; `fine_tuning` freezes parameters, and adapts
                       layers.
8. `buffers`           keeps the model's buffers, such as batch norm's statistics, equal on all workers, and has the batch norms for it.
9. `evaluate`          measures a split, with every row once, and fits the trivial predictors that the model must beat.
10. `saver`            saves the state when that is due, as a `checkpoint`, and resumes from it.
"""

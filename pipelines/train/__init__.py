"""Trains a task's model on a dataset version, on all workers together. Independent of Ray: torchrun can run it.

From a batch to new weights:

1. `loop`             is the loop of every strategy. It acts on the `progress` that a strategy yields, evaluates what an epoch has reached,
                      and `snapshots` saves and resumes. `run_context` is what loop and strategy share, with the `state` of the
                      run; `hooks` are the callbacks.
2. `strategy`         takes a step for every batch; `strategies` creates the one that a config names.
                      `ddp` has one model per worker and one pass; `exact` one pass per shard, with sums in a fixed order.
3. `mesh`             maps workers to rows. `passes` runs a shard's forward passes, sets their dtype, and seeds them by step and shard.
4. `reduce`           sums over workers, in a tree that is the same for any number of workers.
5. `update`           divides and clips gradients and steps the optimizer, at the learning rate of `schedule`; `muon` is an optimizer of
                      matrices, and `threads` limits it to one; `weight_average` averages the weights over steps. `fine_tuning`
                      freezes parameters and gives others a rate of their own; `low_rank_adapters` trains low-rank changes in their
                      place; `initial_fit` says which weights from elsewhere fit the model.
6. `buffers`          keeps the model's buffers, such as batch norm's statistics, equal on all workers; `batch_norm` normalises over the
                      rows of all workers, `frozen_batch_norm` by statistics that stay; `single_rows` refuses it where a pass would have
                      one row.

Around the steps:

7. `step_statistics`  flags, result and sums of steps, read from the device a few steps at a time; `finite` rejects NaN and infinite values.
   `step_clock`       measures the time of a step by its `phases`, `phase_times` gathers it from all workers; `balance` deals shards to
                      workers in proportion to their speed.
8. `evaluate`         a split's metrics, with every row once; `trivial` are the predictors that the model must beat, and the remarks on
                      metrics if it does not.
9. `checkpoint`       saves the state, when `run_context` decides to.
"""

"""Trains a task's model on a dataset version, synchronously on all workers. Independent of Ray: torchrun can run it.

1. `epochs`           resuming, validation, early stopping, saving, the test; `state` is the progress and the best epoch;
                      `hooks` are the callbacks. `loop` runs the steps of an epoch.
2. `schedule`         the learning rate of a step; a strategy of `parallel` computes the step.
3. `step_statistics`  sums of steps, read from the device a few steps at a time; `finite` rejects NaN and infinite values.
   `phase_times`      gathers where the workers' time goes; `balance` deals shards to workers in proportion to their speed.
4. `evaluate`         a split's metrics, with every row once; `remarks` what must be said of them in words;
                      `trivial` the predictors that the model must beat.
5. `saver`            decides when the state is saved; `checkpoint` saves it.
"""

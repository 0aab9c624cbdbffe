"""Fits a task's model to a dataset version: one worker's part, in step with the others. Knows no Ray: torchrun can run it.

1. `loop`             epochs of steps, validation, early stopping, saving; `state` is where it is, and which epoch is the best;
                      `hooks` are its callbacks.
2. `schedule`         the learning rate of a step; how the step is computed is a strategy's, of `parallel`.
3. `step_statistics`  what steps summed up to, read from the device a few steps at a time; `finite` refuses what is no number.
4. `evaluate`         a split's metrics, every row once.
5. `saver`            when the state is saved; how, is `checkpoint`'s.
"""

"""`train`: how the model is trained.

1. `train`     is the section, and `base` what it has for every strategy, with the sections in it; `init_from` is one of its own, and
               `changes` are of settings during a training.
2. `strategy`  is the base class of a strategy's settings, which stand in its own folder, and finds them there.
3. `defaults`  are the settings that follow from the task.
"""

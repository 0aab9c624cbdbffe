"""`train`: how the model is trained.

1. `train`     is the section, and `base` what it has for every strategy; `profile`, `init_from` and `lora` are sections in it.
2. `strategy`  is the base class of a strategy's settings, which stand in its own folder; `strategies` finds them there.
3. `defaults`  are the settings that follow from the task, and `row_pairs` what one that mixes rows needs.
"""

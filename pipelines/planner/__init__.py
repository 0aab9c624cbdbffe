"""Plans a training: which machines, which layout, how long, how much. `planning` computes, and `costs` counts; here they meet a config.

1. `plan`        reads what is to be planned, and lists candidates, with the best of each kind.
2. `layout_settings` writes a layout as the lines of a config that train with it.
3. `plan_text`   shows a plan in the terminal, and as plain values.
"""

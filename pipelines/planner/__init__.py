"""Plans a training: which machines, which layout, how long, how much. `planning` computes, and `costs` counts; here they meet a config.

1. `calibration` measures this machine, and writes its data sheet. `divided_models` measures what a model costs that processes have divided.
2. `pass_timing` times a model's passes, in as many processes as there will be workers. `processes` starts them.
3. `plan`        reads what is to be planned, and lists candidates, with the best of each kind.
4. `layout_settings` writes a layout as the lines of a config that train with it.
5. `at_hand`     chooses the layout of a training by a plan for the devices at hand, as `train.parallel: auto` asks.
6. `plan_text`   shows a plan in the terminal, and as plain values; `plan_page` is its page, with pictures.
"""

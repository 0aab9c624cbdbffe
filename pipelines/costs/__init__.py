"""Counts what a task's model computes, keeps and moves, for `planning`: on tensors without values where that is possible.

1. `operators`  records every operator of a forward pass, with its shapes, and the module that called it.
2. `layers`     adds them up into the costs of the model's layers, per row.
3. `config_costs` does both for the model of a config, with its dataset version or before there is one.
"""

"""Gradient-boosted decision trees.

1. `settings`  has the task `trees` and the strategy `boosting`.
2. `task`      has a `forest`, and what each input contributes to its output.
3. `boosting`  grows trees on the rows of all workers together: each computes exact gradients of its own, and LightGBM's machines, which
               `lightgbm_network` connects, sum histograms of them and find the decisions.
4. `trial`     compares trees with other models for `lockstep init`.
"""

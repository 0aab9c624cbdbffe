"""Gradient-boosted decision trees.

1. `settings`       has the task `trees` and the strategy `boosting`.
2. `task`           has a `forest`; `contributions` explain its output.
3. `boosting`       grows trees on the rows of all workers together.
4. `trial`          compares trees with other models for `lockstep init`.
"""

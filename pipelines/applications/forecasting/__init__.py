"""Forecasts of several series from their history.

1. `settings`          has the task `forecasting`.
2. `task`              has the model, one of `networks`. `futures` is its target.
3. `simple_forecasts`  predict without a network; `details` and `figures` are for the page of a run.
"""

"""Forecasts of several series from their history.

1. `settings`  has the task `forecasting`.
2. `task`      has the models.
3. `metrics`   has the losses and metrics of a future, forecasts without a network, and details for the page of a run; `figures` draws them.
"""

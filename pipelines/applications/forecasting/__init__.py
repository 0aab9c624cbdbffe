"""Forecasts of several series from their history.

1. `settings`  has the task `forecasting`.
2. `task`      has the models.
3. `futures`   has the losses and metrics of what is forecast; `naive_forecasts` are those without a network, to compare with.
4. `forecast_details` are for the page of a run; `figures` draws them.
"""

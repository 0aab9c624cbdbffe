"""Simulations, and networks that learn the solutions of equations.

1. `settings`          has the table format `simulation` and the task `operator`.
2. `simulation`        runs a function from a seed to a row; `burgers` is one.
3. `task`              has a `fourier_operator`.
4. `mean_fields`       predicts without it; `details` and `figures` are for the page of a run.
"""

"""Simulations, and networks that learn the solutions of equations.

1. `settings`    has the table format `simulation` and the task `operator`.
2. `simulation`  runs a function from a seed to a row; `burgers` is one.
3. `task`        has a Fourier neural operator.
4. `field_details` are for the page of a run, where `figures` draws them; with predictions without a network, to compare with.
"""

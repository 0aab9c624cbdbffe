"""Simulators: functions from a seed to the arrays of a row, for tables of format `simulation`.

`burgers` is the viscous Burgers equation.
"""

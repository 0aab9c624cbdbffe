"""Fields: functions on a grid, such as solutions of an equation.

1. `operator`  is the task, `fourier_operator` its network.
2. `trivial`   predicts fields without it.
"""

"""`task`: what the model learns.

1. `base`       is what every task has.
2. `task`       has the settings of the core's kinds, and finds all kinds by name: others stand in the `settings` of an application.
3. `functions`  reads the settings of a function that makes a network.
"""

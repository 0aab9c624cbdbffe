"""Makes a trained model the champion of MLflow's registry if it passes the gates of the config, and rolls back.

1. `gates`               compares values with the bounds of the config, says which gates were not checked, and why. For those of test rows
                         it has models predict, each in a process of its own.
2. `champion_comparison` has the true values of the rows, and the metric of predictions; it compares two models by a paired bootstrap.
3. `alias`               registers versions and moves the alias `champion`, one promotion at a time.
4. `promote`             goes from a run to a recorded decision.
"""

"""Makes a trained model the champion of MLflow's registry if it passes the gates of the config, and rolls back.

1. `candidate`  reads a run with its model and dataset version, and checks its lineage.
2. `gates`      compares values with the bounds of the config, and says which gates were not checked, and why.
3. `target`     has the true values of the rows, and the metric of predictions; it compares two models by a paired bootstrap.
4. `measure`    gets the raw rows of the test split with Spark, and has models predict them, each in a process of its own.
5. `alias`      registers versions and moves the alias `champion`, one promotion at a time.
6. `run`        goes from a run to a recorded decision.
"""

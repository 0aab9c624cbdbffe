"""A finished model, and all that can be done with it. Five rooms:

1. `model`     logs a model in MLflow that predicts from raw rows, and loads such models.
2. `batch`     predicts whole tables with Spark, committed whole or not at all.
3. `http`      serves a model with Ray Serve, and follows its alias.
4. `registry`  makes a model the champion if it passes gates, and rolls back.
5. `export`    writes the model for other software and hardware, and compares it with the one in MLflow.
"""

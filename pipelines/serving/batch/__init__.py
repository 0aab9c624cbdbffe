"""Batch prediction with Spark: rows of any source in, Parquet with predictions out, committed whole or not at all.

1. `fetched_model`        is the model: what it takes and gives.
2. `input_tables`         finds the tables to read, and whether the model takes their rows or those of the config's query.
   `input_columns`        detects that files are Parquet, converts their rows to the schema of the table, and finds the columns that only
                          the target needs, and the input lacks.
3. `worker`               runs in Spark's tasks: a model in a process of its own predicts record batches, and the rows are written.
4. `predictions_manifest` is the manifest of the files: it is committed, and read again.
5. `predict_tables`       goes from a config, a model and an input to a committed output.
"""

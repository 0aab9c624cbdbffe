"""Batch prediction with Spark: rows of any source in, Parquet with predictions out, committed whole or not at all.

1. `model`     fetches the model, and says what it takes and gives.
2. `source`    finds the tables to read, and whether the model takes their rows or those of the config's query.
   `formats`   sees that files are Parquet, whatever the config says; `declared` converts their rows to the schema of the table;
   `absent`    finds out which columns only the target needs, and the input lacks.
3. `worker`    runs in Spark's tasks: a model in a process of its own predicts record batches, and the rows are written.
4. `output`    describes what was written in a manifest, commits it, and finds it again.
5. `run`       goes from a config, a model and an input to a committed output.
"""

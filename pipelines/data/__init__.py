"""Data, from raw tables to batches. Four rooms:

1. `sources`   reads raw tables of any format with Spark.
2. `features`  encodes columns: Spark fits encoders, ETL and the served model apply them.
3. `versions`  is the format of a dataset on disk. Both `etl` and `loader` know it, and meet nowhere else.
4. `loader`    turns a version into batches, in an order that is a pure function of its arguments.

`rowwise` translates a row-by-row query to DuckDB, for models that are served without Spark.
"""

"""Raw tables of any format with Spark: columns, identity and rows of each.

1. `base`      is the interface of a raw table: columns, identity, state, rows; it makes one for every table of a config, and runs Python on
               the executors. A class of one's own is named by `module:Class`, and formats that few need are folders of `formats`.
2. `files`     finds and opens the files of a table.
3. `text`      cuts files of text into records, and parses each alone: CSV, JSON and lines.
4. `parquet_table` reads Parquet, also files whose columns have different types, after `parquet_footers` has looked at their footers.
5. `cell_table` reads formats whose cells have types of their own, by readers with the interface of `cell_files`; `arrow_table` those whose
   columns have types, by readers with the interface of `arrow_files`, which converts Arrow's types to those of Spark.
   `numpy_columns` makes columns of NumPy's arrays.
6. `tables`    reads all tables once, registers their valid rows as views, and returns malformed records separately.

`source_errors` turns Spark's errors into the project's; `spark_sql` writes values and names in SQL.
"""

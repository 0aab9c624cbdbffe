"""Raw tables of any format with Spark: columns, identity and rows of each.

1. `base`      is the interface of a raw table: columns, identity, state, rows; it makes one for every table of a config. A class of
               one's own is named by `module:Class`.
2. `files`     finds and opens the files of a table, and has the formats of whole files: pictures, sounds, IDX and archives.
3. `text`      cuts files of text into records, and parses each alone: CSV, JSON and lines.
4. `parquet`   reads Parquet, also files whose columns have different types.
5. `cells`     reads formats whose cells have types of their own: Excel and SQLite.
6. `tables`    reads all tables once, registers their valid rows as views, and returns malformed records separately.

`distribute` runs Python on the executors; `conditions` joins many conditions; `source_errors` turns Spark's errors into the project's;
`signatures` recognizes binary formats where text is expected; `spark_sql` writes values in SQL.
"""

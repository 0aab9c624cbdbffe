"""Raw tables of any format with Spark: columns, identity and rows of each.

1. `base`      is the interface of a raw table: columns, identity, state, rows; it makes one for every table of a config. A class of
               one's own is named by `module:Class`.
2. `file_table`  is the base of tables of files. `files` finds them, `globs` matches their names, `content` opens them, and `pack` caches
               whole and small files, so that each is opened once.
3. `text_table`  is the base of text formats. `records` cuts files into records (`documents` those of JSON), `csv_validation` checks the
               records; `csv`, `json` and `text` parse each record alone, into `parsed` columns. `numbers` defines numbers in
               text, and `folder_columns` makes columns of folders. Of JSON, `json_tokens` finds keys, and `json_keys` matches them with
               the schema's `json_names`.
4. `binary_file` and `parquet` derive from `spark_files`, which Spark reads; `idx` (files of `idx_format`) and `tar` are the other formats.
               Of Parquet, `footers` are checked first; `parquet_columns` finds what the columns of each file are, and
               `parquet_groups` reads files of different types, which it widens.
   `cell_table` is the base of formats whose cells have types of their own, `excel` and `sqlite`; `cells` converts their values. Without
               Spark, `workbook` and `database` read their files, by the interface of `cell_files`.
   `simulation` makes a row of each seed by a function of the user's.
5. `tables`    reads all tables once, registers their valid rows as views, and returns malformed records separately.

`distribute` runs Python on the executors; `source_errors` turns Spark's errors into the project's, with `spark_messages`; `signatures`
recognizes binary formats where text is expected.
"""

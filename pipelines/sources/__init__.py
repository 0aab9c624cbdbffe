"""Raw tables, whatever they are read from: columns, identity and rows of each, with Spark.

1. `base`      what a raw table must be able to say: its columns, what identifies its rows, whether it has changed, its rows.
               `formats` makes one for every table of a config; one's own comes in by `module:Class`.
2. `file_table`  tables of files, which `files` finds and `content` opens: they are identified by `checksums`, and `pack`
               keeps small and whole files, so that each is opened once.
3. `text_table`  files of text. `records` (of JSON documents, `documents`) cuts them, `soundness` judges the records;
               `csv`, `json`, `text` and `package` parse each alone, into `parsed` columns.
4. `binary_file` and `parquet` (after a look at its `footers`) are `spark_files`, which Spark itself reads; `idx` and `tar` are the
               other formats.
5. `tables`    reads all tables once, and registers their good rows as views; what is malformed is kept apart.

`distribute` runs Python on the executors; `faults` words Spark's errors, of which `spark_messages` says what they hold.
"""

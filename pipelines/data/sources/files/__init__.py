"""Files of raw tables, and formats whose rows are whole files.

1. `file_table`   is the base of tables of files.
2. `files`        finds them by their names, `content` opens them, and `pack` caches whole and small files, so that each is
                  opened once. `folder_columns` makes columns of folders.
3. `binary_file`  has a row for each file, and derives from `spark_files`, which Spark reads; `tar` has one for each member of an archive,
                  and `idx` one for each entry of files in `idx_format`.
"""

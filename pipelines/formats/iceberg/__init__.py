"""Iceberg: the rows of one snapshot of a table, read without Java libraries.

1. `settings`    names the table and the snapshot; `table` reads it in Spark's tasks; `draft` is for `lockstep init`.
2. `opening`     finds the table's metadata, in a catalog or in its folder; `snapshot` chooses the snapshot, and has its schema. `library`
                 says what to install.
3. `manifests`   reads the lists of files of a snapshot, and `planning` which delete files apply to which data file.
4. `data_files`  reads the rows of data files. `parquet_files` opens them; `projection` makes the table's columns of the file's, by their
                 IDs and in the types of `columns`; `deletes` says which rows are deleted, by positions or by keys, as `key_sets` has.
5. `increments`  finds the data files whose rows came after an earlier snapshot.

pyiceberg, which reads the metadata, reads data files too. It is not used for them: it refuses equality deletes, and makes of a NULL list or
map of structs an empty one.
"""

"""Files of raw tables.

1. `file_table`   is the base of tables of files; it caches whole and small files in packs, so that each is opened once.
2. `files`        finds them by their names, `listing` holds them as columns, and `content` opens them. `folder_columns` makes columns of
                  folders, and `dvc` says which commit of DVC the files are of.
3. `spark_files`  is the base of formats whose files Spark lists, and has the one with a row for each file.
"""

"""The on-disk format of a dataset version. `etl` writes it and `loader` reads it; they share nothing else.

    <dataset.path>/<version>/
      manifest.json                    written last; without it there is no version. It names the committed attempt, ends with the
                                       SHA-256 of its own bytes, and contains those of the two tables.
      row_groups-<attempt>.parquet     one row per row group, in the order of positions; a part may be one of another version, which
                                       this one shares: ../<version>/data-…
      sources-<attempt>.parquet        one row per file of the raw tables: its path, size and checksum
      data-<attempt>/split=train/part-….parquet
      keys-<attempt>/split=train/part-….parquet    with `dataset.key`: hashes of each row's key and content, in the order of the rows
      quarantine-<attempt>/….parquet
      rows-<attempt>/split=test/part-….parquet   what its rows were before they were encoded, in small splits other than train
    <dataset.path>/erasures/<name>.json            the certificate of an erasure of rows; <name>.journal until it has ended

1. `schema`    tensor columns, as Arrow fields and as NumPy arrays.
2. `parts`     writes one part file, and digests its row groups. `row_groups` are those of a version, as columns, and `rows_digest` is of
               the set of a split's rows, whatever their order.
3. `manifest`  describes a version, its row counts and its digest.
4. `storage`   the file operations that make a version visible complete or not at all, and JSON with its own checksum.
5. `commit`    turns an attempt into a version, if its row counts agree. `raw_inputs` are the raw files, and rows as they were, which only
               pages show; `source_files` lists the files, and `checked_tables` reads and writes such lists. `row_keys` are the hashes of
               the rows' keys, `rewrite` writes parts again without some rows, and `merge_parts` many small ones as one.
               `part_folders` finds the attempts whose parts some index names, which nobody may remove. `erasures` has what ETL must
               know of erasures, and the lock of a dataset's folder.
6. `versions`  finds and opens a version, and reads single columns; `folds` selects the splits of one training; `plain` opens a
               folder of any Parquet files as a version, or writes one from arrays.
7. `data_profile`  what an ETL knows about its data beyond the manifest, for pages and MLflow.
"""

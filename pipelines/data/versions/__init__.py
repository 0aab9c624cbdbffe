"""The on-disk format of a dataset version. `etl` writes it and `loader` reads it; they share nothing else.

    <dataset.path>/<version>/
      manifest.json                    written last; without it there is no version. It names the committed attempt, ends with the
                                       SHA-256 of its own bytes, and contains those of the two tables.
      row_groups-<attempt>.parquet     one row per row group, in the order of positions
      sources-<attempt>.parquet        one row per file of the raw tables: its path, size and checksum
      data-<attempt>/split=train/part-….parquet
      quarantine-<attempt>/….parquet
      rows-<attempt>/split=test/part-….parquet   what its rows were before they were encoded, in small splits other than train

1. `schema`    tensor columns, as Arrow fields and as NumPy arrays.
2. `parts`     writes one part file, and digests its row groups.
3. `manifest`  describes a version and its digest; `checksummed_json` is JSON with its own checksum; `sources` writes the
               tables beside it, one of which lists the raw files.
4. `storage`   the file operations that make a version visible complete or not at all.
5. `commit`    turns an `attempt` into a version, if its row counts agree (`balance`).
   `raw_rows`  are rows as they were, which only pages show.
   `columns`   reads single columns, and `folds` selects the splits of one training of a cross-validation.
6. `data_profile`  what an ETL knows about its data beyond the manifest, for pages and MLflow.
7. `versions`  finds and opens a version; `plain` opens a folder of any Parquet files as one, or writes one from arrays.
"""

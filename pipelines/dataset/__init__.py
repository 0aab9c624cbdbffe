"""A dataset version on disk: what `etl` writes and `loader` reads. The two meet nowhere else.

    <dataset.path>/<version>/
      manifest.json                    written last, names the attempt that counts; without it there is no version;
                                       ends with the SHA-256 of its own bytes, and has those of the tables beside it
      row_groups-<attempt>.parquet     one row per row group, in the order that positions count
      sources-<attempt>.parquet        one row per file of the raw tables: its path, size and checksum
      data-<attempt>/split=train/part-….parquet
      quarantine-<attempt>/….parquet

1. `schema`    tensor columns, as Arrow fields and as NumPy arrays.
2. `parts`     writes one part file, and digests its row groups.
3. `manifest`  what a version contains, and its digest; `sealed` JSON that notices an altered byte, `listings` the tables beside it.
4. `storage`   the few file operations on which the promise of "whole or not at all" rests.
5. `sources`   the files that a version was made of.
6. `commit`    makes an attempt's parts a version, if its rows `balance`.
7. `versions`  finds and opens a version; `plain` opens a folder of any Parquet files as one, `from_arrays` writes one of arrays.
"""

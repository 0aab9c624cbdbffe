"""The raw inputs that a version keeps beside its data: the list of the raw files, and rows of the query as they were before they were
encoded. Nothing of them enters a version's digest.

There may be millions of files, so the manifest, which is part of every model, has only a summary of each table, and the checksum of the
list, which `source_files` writes. Rows are kept of validation and test, for whoever looks at single rows of an evaluation: in
rows-<attempt>/split=…/, one file for each part and in the order of its rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage

RAW_ROWS = "rows"
"""Prefix of the folder of raw rows; a hyphen and the attempt's name follow."""
MOST_ROWS = 1_000_000
"""Rows of a split up to which raw rows are kept, which bounds time and space of an ETL."""
MOST_COLUMNS = 200
"""Columns of raw rows that are kept, those of the key first. Bytes and nested values are not."""


def side_file(part: str, prefix: str) -> str:
    """The file beside a part in the folder with this prefix, such as RAW_ROWS; both relative to the version."""
    *folders, attempt, split, name = part.split("/")
    return "/".join([*folders, f"{prefix}-{attempt.partition('-')[2]}", split, name])


@dataclass(frozen=True, order=True)
class SourceFile:
    """One file of a raw table when it was read."""

    path: str
    bytes: int
    checksum: str
    """`sha256:…` of its bytes, or `stat:…` of size and modification time."""


Sources = dict[str, Sequence[SourceFile]]
"""Files by table."""


def write_raw_rows(filesystem: FileSystem, path: str, rows: pa.Table) -> None:
    """Write raw rows. A dictionary of floats, which rarely repeat, costs three times the time of all else, and a fifth of the space."""
    repeating = [field.name for field in rows.schema if not pa.types.is_floating(field.type)]
    pq.write_table(rows, path, filesystem=filesystem, compression="zstd", use_dictionary=repeating)


def read_raw_rows(filesystem: FileSystem, root: str, parts: Sequence[str], rows: Sequence[int]) -> pa.Table | None:
    """These rows of a split, by their numbers and in this order; None if they were not kept. `parts` are the files of the split's parts,
    in order and relative to `root`. Raises OSError or DatasetError if the store fails, ArrowException for a damaged file."""
    files = [storage.part_path(root, side_file(part, RAW_ROWS)) for part in parts]
    if not all(entry.is_file for entry in filesystem.get_file_info(files)):
        return None
    numbers, first, total = np.array(rows, np.int64), 0, 0
    tables: list[pa.Table] = []
    places = np.full(len(numbers), -1)
    for file in files:
        with filesystem.open_input_file(file) as source, pq.ParquetFile(source) as part:
            count = part.metadata.num_rows
            inside = np.flatnonzero((numbers >= first) & (numbers < first + count))
            if len(inside):
                places[inside] = total + np.arange(len(inside))
                total += len(inside)
                tables.append(part.read().take(pa.array(numbers[inside] - first)))
            first += count
    return pa.concat_tables(tables).take(pa.array(places)) if tables and (places >= 0).all() else None

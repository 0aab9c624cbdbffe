"""The query's rows of validation and test as they were before they were encoded, for whoever looks at single rows of an evaluation.

They lie beside the data, in rows-<attempt>/split=…/, one file for each part and in the order of its rows. Nothing of them enters a
version's digest: without them, a version is as good as with them.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage

RAW_ROWS = "rows"
"""Prefix of the folder; a hyphen and the attempt's name follow."""
MOST_ROWS = 1_000_000
"""Rows of a split up to which they are kept, which bounds time and space of an ETL."""
MOST_COLUMNS = 200
"""Columns that are kept, those of the key first."""
_PART = re.compile(r"part-(\d+)-")


def is_shown(kind: pa.DataType) -> bool:
    """Whether values of this type are kept: numbers, texts, dates and times, but neither bytes nor what is nested."""
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
    return is_number or types.is_string(kind) or types.is_large_string(kind) or types.is_date(kind) or types.is_timestamp(kind)


def write_raw_rows(filesystem: FileSystem, path: str, rows: pa.Table) -> None:
    pq.write_table(rows, path, filesystem=filesystem, compression="zstd")


def read_raw_rows(filesystem: FileSystem, root: str, attempt: str, split: str, rows: Sequence[int]) -> pa.Table | None:
    """These rows of a split, by their numbers and in this order; None if they were not kept. Raises OSError or DatasetError if the store
    fails, ArrowException for a damaged file."""
    entries = storage.entries(filesystem, f"{root}/{RAW_ROWS}-{attempt}/split={split}")
    files = {int(named[1]): entry.path for entry in entries if (named := _PART.match(entry.base_name))}
    wanted, first, taken = np.array(rows, np.int64), 0, 0
    found: list[pa.Table] = []
    places = np.full(len(wanted), -1)
    for _, file in sorted(files.items()):
        with filesystem.open_input_file(file) as source, pq.ParquetFile(source) as part:
            count = part.metadata.num_rows
            inside = np.flatnonzero((wanted >= first) & (wanted < first + count))
            if len(inside):
                places[inside] = taken + np.arange(len(inside))
                taken += len(inside)
                found.append(part.read().take(pa.array(wanted[inside] - first)))
            first += count
    return pa.concat_tables(found).take(pa.array(places)) if found and (places >= 0).all() else None

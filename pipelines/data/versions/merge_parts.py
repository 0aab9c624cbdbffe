"""Writes many small parts of a split as one: small row groups cost the loader a read each, and shuffle poorly.

The rows of the parts are permuted together, in an order that follows from their digests alone: else the rows of one night would stay side
by side.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt
from pipelines.data.versions.parts import RowGroup, write_part
from pipelines.data.versions.raw_inputs import RAW_ROWS, side_file, write_raw_rows
from pipelines.data.versions.rewrite import RewrittenPart
from pipelines.data.versions.row_keys import KEYS, write_keys
from pipelines.data.versions.schema import TensorColumn, arrow_schema, from_numpy
from pipelines.data.versions.versions import read_stored_columns
from pipelines.runtime import philox

MOST_SMALL_PARTS = 32
"""Small parts that a split may have before they are merged."""
SMALL = 4
"""A part is small if its rows would fill less than this fraction of a row group, as in a quarter."""
Part = tuple[RowGroup, ...]
"""All row groups of a part."""


def find_small_parts(parts: Iterable[Part], row_bytes: int, row_group_bytes: int) -> list[list[Part]]:
    """The small parts of each split that has too many of them. `row_bytes` are those of a decoded row."""
    small: dict[str, list[Part]] = {}
    for part in parts:
        if sum(group.rows for group in part) * row_bytes * SMALL < row_group_bytes:
            small.setdefault(part[0].split, []).append(part)
    return [parts_of_split for parts_of_split in small.values() if len(parts_of_split) > MOST_SMALL_PARTS]


def merge_parts(
    filesystem: FileSystem, root: str, attempt: Attempt, columns: tuple[TensorColumn, ...], row_group_bytes: int, parts: Sequence[Part]
) -> RewrittenPart:
    """Write parts of one split as one file of the attempt, with the number of the first. Raises CorruptError if a file is damaged,
    DatasetError if one cannot be written."""
    groups = [group for part in parts for group in part]
    arrays = read_stored_columns(filesystem, root, groups, columns)
    digest = sha256("".join(group.digest for group in groups).encode()).digest()
    rows = sum(group.rows for group in groups)
    order = np.argsort(philox.random_words(rows, key=int.from_bytes(digest[:4], "little")), kind="stable")
    table = pa.Table.from_arrays(
        [from_numpy(column, np.concatenate([values[column.name] for values in arrays])[order]) for column in columns],
        schema=arrow_schema(columns),
    )
    split, number = groups[0].split, groups[0].part
    merged = RewrittenPart(groups[0].file, merged=tuple(part[0].file for part in parts[1:]))
    file = attempt.new_file(f"data-{attempt.name}/split={split}", f"part-{number:05}")
    with storage.store_errors(f"{attempt.root}/{file}"):
        merged.row_groups = write_part(attempt.filesystem, attempt.root, file, split, number, columns, table, row_group_bytes)
    files = [part[0].file for part in parts]
    for prefix, write in ((KEYS, write_keys), (RAW_ROWS, write_raw_rows)):
        merged.side_files += _merge_side_files(filesystem, root, attempt, files, file, prefix, order, write)
    return merged


def _merge_side_files(
    filesystem: FileSystem,
    root: str,
    attempt: Attempt,
    parts: Sequence[str],
    file: str,
    prefix: str,
    order: np.ndarray,
    write: Callable[[FileSystem, str, pa.Table], None],
) -> list[str]:
    """Write the files with this prefix beside the parts as one, if each part has one."""
    paths = [storage.part_path(root, side_file(part, prefix)) for part in parts]
    if not all(entry.is_file for entry in filesystem.get_file_info(paths)):
        return []
    tables = []
    for path in paths:
        with filesystem.open_input_file(path) as source:
            tables.append(pq.ParquetFile(source).read(use_threads=False))
    target = side_file(file, prefix)
    with storage.store_errors(f"{attempt.root}/{target}"):
        storage.make_folder(attempt.filesystem, f"{attempt.root}/{target}".rpartition("/")[0])
        write(attempt.filesystem, f"{attempt.root}/{target}", pa.concat_tables(tables).take(pa.array(order)))
    return [target]

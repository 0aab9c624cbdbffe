"""Writes parts of a version again without some of their rows: those that newer rows replace, or that must be erased.

Row groups keep their order and their bounds, so those that lose no row keep their digest. The files beside a part, of keys and of raw rows,
are written again with it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from xxhash import xxh3_128

from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.parts import RowGroup, checksum, row_group_digest, write_row_groups
from pipelines.data.versions.raw_inputs import RAW_ROWS, side_file, write_raw_rows
from pipelines.data.versions.row_keys import KEYS, read_keys, write_keys
from pipelines.data.versions.rows_digest import sum_row_hashes
from pipelines.data.versions.schema import TensorColumn, arrow_schema, from_numpy
from pipelines.data.versions.versions import read_stored_columns
from pipelines.errors import CorruptError


@dataclass(frozen=True)
class Removal:
    """Rows that leave one part."""

    groups: tuple[RowGroup, ...]
    """All row groups of the part, in their order; all rows of the file belong to them."""
    rows: tuple[int, ...]
    """Numbers of the rows within the part, ascending."""


@dataclass
class RewrittenPart:
    """A part without the rows of a removal."""

    file: str
    """The part that this one replaces, relative to the version that was read."""
    merged: tuple[str, ...] = ()
    """Further parts whose rows are in it."""
    row_groups: list[RowGroup] = field(default_factory=list)
    """None if no row is left."""
    side_files: list[str] = field(default_factory=list)
    removed: int = 0
    removed_sum: int = 0
    """Sum of the hashes of the removed rows; see `rows_digest`."""
    removed_classes: dict[str, dict[int, int]] = field(default_factory=dict)
    """How often each class stands in the removed values, by column of those that are counted."""


def check_part(filesystem: FileSystem, path: str, groups: Sequence[RowGroup]) -> str:
    """The checksum of a part's file, as `file_checksum` has it. Raises CorruptError unless its row groups, of which `groups` are all, have
    the checksums of the index."""
    total = xxh3_128()
    with storage.store_errors(path), filesystem.open_input_file(path) as stream:
        for group in groups:
            content = stream.read_buffer(group.bytes)
            if checksum(content) != group.checksum:
                raise CorruptError(f"{path}: row group {group.index} has another checksum than the index says; {RESTORE}")
            total.update(content)
        total.update(stream.read_buffer())
    return f"xxh3:{total.hexdigest()}"


def rewrite_part(
    filesystem: FileSystem, root: str, attempt: Attempt, columns: Sequence[TensorColumn], counted: Sequence[str], removal: Removal
) -> RewrittenPart:
    """Write a part of the version in the folder `root` again, as a file of the attempt. `counted` are the columns whose classes are
    counted. Raises CorruptError if a file is damaged, DatasetError if one cannot be written."""
    first, leaving = removal.groups[0], np.array(removal.rows, np.int64)
    arrays = read_stored_columns(filesystem, root, removal.groups, columns)
    ends = np.cumsum([group.rows for group in removal.groups])
    keeps = [np.ones(group.rows, bool) for group in removal.groups]
    for number, start in enumerate(ends - [group.rows for group in removal.groups]):
        inside = leaving[(leaving >= start) & (leaving < ends[number])]
        keeps[number][inside - start] = False
    removed = {
        column.name: np.concatenate([values[column.name][~keep] for values, keep in zip(arrays, keeps, strict=True)]) for column in columns
    }
    rewritten = RewrittenPart(first.file, removed=len(leaving), removed_sum=sum_row_hashes(columns, removed))
    rewritten.removed_classes = {name: dict(Counter(removed[name].ravel().tolist())) for name in counted}
    if len(leaving) == ends[-1]:
        return rewritten
    tables = _tables_left(tuple(columns), removal.groups, arrays, keeps)
    file = attempt.new_file(f"data-{attempt.name}/split={first.split}", f"part-{first.part:05}")
    with storage.store_errors(f"{attempt.root}/{file}"):
        rewritten.row_groups = write_row_groups(attempt.filesystem, attempt.root, file, first.split, first.part, tuple(columns), tables)
    rewritten.side_files = _rewrite_side_files(filesystem, root, attempt, removal, file, np.concatenate(keeps))
    return rewritten


def _tables_left(
    columns: tuple[TensorColumn, ...], groups: Sequence[RowGroup], arrays: Sequence[dict[str, np.ndarray]], keeps: Sequence[np.ndarray]
) -> Iterator[tuple[pa.Table, str]]:
    """The rows that each row group keeps, and their digest."""
    for group, values, keep in zip(groups, arrays, keeps, strict=True):
        if keep.any():
            table = pa.Table.from_arrays(
                [from_numpy(column, values[column.name][keep]) for column in columns], schema=arrow_schema(columns)
            )
            yield table, group.digest if keep.all() else row_group_digest(columns, table)


def _rewrite_side_files(filesystem: FileSystem, root: str, attempt: Attempt, removal: Removal, file: str, keep: np.ndarray) -> list[str]:
    """Write the files beside the part again, of those that it has."""
    written, mask, old = [], pa.array(keep), removal.groups[0].file
    ((_, keys),) = read_keys(filesystem, root, removal.groups)
    sources: list[tuple[str, pa.Table, Callable[[FileSystem, str, pa.Table], None]]] = [(KEYS, keys.filter(mask), write_keys)]
    raw_rows = storage.part_path(root, side_file(old, RAW_ROWS))
    if filesystem.get_file_info(raw_rows).is_file:
        with filesystem.open_input_file(raw_rows) as source:
            sources.append((RAW_ROWS, pq.ParquetFile(source).read(use_threads=False).filter(mask), write_raw_rows))
    for prefix, table, write in sources:
        written.append(side_file(file, prefix))
        path = f"{attempt.root}/{written[-1]}"
        with storage.store_errors(path):
            storage.make_folder(attempt.filesystem, path.rpartition("/")[0])
            write(attempt.filesystem, path, table)
    return written

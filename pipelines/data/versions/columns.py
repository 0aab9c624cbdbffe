"""Reads single columns of row groups, without the others and without checksums, which only the loader compares."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.schema import TensorColumn, to_numpy
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError, DatasetError


def read_column(version: Version, split: str, column: TensorColumn) -> np.ndarray:
    """One column of the split's rows, shape (rows, *column.shape). Raises CorruptError as `read_stored_columns` does."""
    groups, folds = version.split_row_groups(split), version.manifest.folds
    deciding = [version.manifest.encoders[name].column for name in folds.rows] if folds else []
    arrays = read_stored_columns(version.filesystem, version.root, groups, [column, *deciding])
    return np.concatenate([group.select(values)[column.name] for group, values in zip(groups, arrays, strict=True)])


def read_stored_columns(
    filesystem: FileSystem, root: str, groups: Sequence[RowGroup], columns: Sequence[TensorColumn]
) -> list[dict[str, np.ndarray]]:
    """These columns of the stored rows of each row group, shape (stored_rows, *column.shape), by name.

    Raises CorruptError if a file is gone or has other rows than the manifest says.
    """
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group.file, []).append(place)
    values: dict[int, dict[str, np.ndarray]] = {}
    for file, places_in_file in places.items():
        arrays = _read_file(filesystem, f"{root}/{file}", [groups[place] for place in places_in_file], columns)
        values.update(zip(places_in_file, arrays, strict=True))
    return [values[place] for place in range(len(groups))]


def _read_file(
    filesystem: FileSystem, path: str, groups: Sequence[RowGroup], columns: Sequence[TensorColumn]
) -> list[dict[str, np.ndarray]]:
    try:
        with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as parquet:
            names = [column.name for column in columns]
            table = parquet.read_row_groups([group.index for group in groups], columns=names, use_threads=False)
        arrays = {column.name: _concatenate(column, table.column(column.name)) for column in columns}
    except (OSError, KeyError, pa.ArrowException, DatasetError) as error:
        storage.ask(filesystem, path)
        raise CorruptError(f"{path}: {error}; {RESTORE}") from error
    ends = np.cumsum([group.stored_rows for group in groups])
    if table.num_rows != ends[-1]:
        raise CorruptError(f"{path} has {table.num_rows} rows; the manifest says {ends[-1]}; {RESTORE}")
    pieces = {name: np.split(array, ends[:-1]) for name, array in arrays.items()}
    return [{name: pieces[name][number] for name in pieces} for number in range(len(groups))]


def _concatenate(column: TensorColumn, values: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate([to_numpy(column, chunk) for chunk in values.chunks])

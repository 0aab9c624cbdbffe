"""Opens any folder of plain Parquet with scalar columns as a version, so that the loader reads it without ETL."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, FileType

from pipelines.config.did_you_mean import name_list
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import FittedEncoder, Manifest, content_digest, split_summaries
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError, DatasetError


def from_parquet(path: str, target: str, split: str = "train") -> Version:
    """Every Parquet file below `path`, by name, as one split of a version that exists in memory only.

    Its digest covers names, sizes and footers, not the rows: only footers are read. Raises DatasetError if there
    is no file, the files' columns differ, or a column is not a number.
    """
    filesystem, root = storage.locate(path)
    files = [
        entry for entry in storage.entries(filesystem, root, recursive=True) if entry.type == FileType.File and entry.extension == "parquet"
    ]
    if not files:
        raise DatasetError(f"{path} has no .parquet file; give a folder that has")
    columns: tuple[TensorColumn, ...] = ()
    groups: list[RowGroup] = []
    for part, entry in enumerate(files):
        footer = _footer(filesystem, entry.path)
        declared = tuple(_column(field, target, entry.path) for field in footer.schema.to_arrow_schema())
        if columns and declared != columns:
            raise DatasetError(
                f"{entry.path} has columns {_names(declared)}; {files[0].path} has {_names(columns)}: they must be equal; open them apart"
            )
        columns = declared
        offset = entry.size - 8 - footer.serialized_size
        file = entry.path.removeprefix(root).lstrip("/")
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            groups.append(RowGroup(split, part, index, file, group.num_rows, *_span(group), "", offset, "", ""))
    if target not in {column.name for column in columns}:
        raise DatasetError(f"{path} has no column {target}; it has {_names(columns)}")
    return Version(filesystem, root, _manifest(columns, groups), tuple(groups))


def identity_encoders(columns: tuple[TensorColumn, ...]) -> dict[str, FittedEncoder]:
    """Encoders for columns that were not made by ETL."""
    feature = {"encoder": "identity"}
    return {column.name: FittedEncoder(feature=feature, inputs=(column.name,), state={}, column=column) for column in columns}


def _footer(filesystem: FileSystem, path: str) -> pq.FileMetaData:
    try:
        with filesystem.open_input_file(path) as file:
            return pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise CorruptError(f"{path}: {error}; write the file again") from error


def _span(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Offset and number of a row group's bytes."""
    chunks = [group.column(number) for number in range(group.num_columns)]
    starts = [min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0) for chunk in chunks]
    ends = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]
    first = min(starts, default=0)
    return first, max(ends, default=0) - first


def _column(field: pa.Field, target: str, path: str) -> TensorColumn:
    try:
        dtype = str(np.dtype(field.type.to_pandas_dtype()))
        return TensorColumn(name=field.name, dtype=dtype, role="target" if field.name == target else "feature")
    except (NotImplementedError, TypeError, ValueError) as error:
        raise DatasetError(
            f"{path}: column {field.name} is {field.type}; plain Parquet is read with columns of numbers only: encode it with jobs/etl.py"
        ) from error


def _names(columns: tuple[TensorColumn, ...]) -> str:
    return name_list([f"{column.name} {column.dtype}" for column in columns])


def _manifest(columns: tuple[TensorColumn, ...], groups: list[RowGroup]) -> Manifest:
    encoders = identity_encoders(columns)
    digest = content_digest(encoders, groups)
    splits = split_summaries(encoders, groups)
    return Manifest(name="plain", version=digest[:12], digest=digest, attempt="", encoders=encoders, splits=splits)

"""Opens any folder of plain Parquet with scalar columns as a version, so that the loader reads it without ETL; and writes
arrays as a version, without Spark, for benchmarks and tests."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, FileType

from pipelines.config.messages.words import name_list
from pipelines.data.versions import storage
from pipelines.data.versions.commit import commit
from pipelines.data.versions.manifest import SPLITS, FittedEncoder, Manifest, content_digest, split_summaries, tensor_columns
from pipelines.data.versions.parts import RowGroup, checksum, write_part
from pipelines.data.versions.row_groups import collect_row_groups
from pipelines.data.versions.schema import TensorColumn, arrow_schema, from_numpy, schema_to_text
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import ConfigError, CorruptError, DatasetError

_FOOTER_END = 8
"""Bytes behind a footer: its length, and Parquet's mark."""
# ETL names versions by their inputs, and attempts by a random name; here there is one of each per path.
VERSION, ATTEMPT = "0" * 12, "a"


def open_parquet(path: str, target: str, split: str = "train", classes: int | None = None) -> Version:
    """Every Parquet file below `path`, by name, as a version that exists in memory only. Files in folders `train`, `validation` and `test`
    are of these splits, all others of `split`. A target of `classes` holds their numbers, from 0.

    Its digest covers names, sizes and footers, not the rows: only footers are read. So it covers the values as far as their compressed size
    or the statistics in a footer, such as each column's least and greatest value, show them. Raises DatasetError if there is no file, the
    files' columns differ, or a column is not a number."""
    filesystem, root = storage.locate(path)
    files = [
        entry for entry in storage.entries(filesystem, root, recursive=True) if entry.type == FileType.File and entry.extension == "parquet"
    ]
    if not files:
        raise DatasetError(f"{path} has no .parquet file; give a folder that has")
    columns, schema = tuple[TensorColumn, ...](), pa.schema([])
    groups: list[RowGroup] = []
    for part, entry in enumerate(files):
        footer, footer_bytes = _read_footer(filesystem, entry.path)
        schema = footer.schema.to_arrow_schema()
        declared = tuple(_column(field, target, entry.path, classes) for field in schema)
        if columns and declared != columns:
            raise DatasetError(
                f"{entry.path} has columns {_names(declared)}; {files[0].path} has {_names(columns)}: they must be equal; open them apart"
            )
        columns = declared
        file = entry.path.removeprefix(root).lstrip("/")
        groups += _row_groups(split, part, file, footer, footer_bytes, entry.size)
    if target not in {column.name for column in columns}:
        raise DatasetError(f"{path} has no column {target}; it has {_names(columns)}")
    encoders = {
        name: encoder.model_copy(update={"state": {"dtype": encoder.column.dtype, "impute": None}})
        for name, encoder in identity_encoders(columns).items()
    }  # with the state that a served model needs: integers and float64 stay what they are
    raw_schema = schema_to_text(pa.schema([field.remove_metadata() for field in schema]))
    return Version(filesystem, root, _describe("plain", encoders, groups, raw_schema=raw_schema), collect_row_groups(groups))


def identity_encoders(columns: tuple[TensorColumn, ...]) -> dict[str, FittedEncoder]:
    """Encoders for columns that were not made by ETL."""
    feature = {"encoder": "identity"}
    return {column.name: FittedEncoder(feature=feature, inputs=(column.name,), state={}, column=column) for column in columns}


def _read_footer(filesystem: FileSystem, path: str) -> tuple[pq.FileMetaData, bytes]:
    """A file's footer, and its bytes up to the end of the file."""
    try:
        with filesystem.open_input_file(path) as file:
            footer = pq.read_metadata(file)
            length = footer.serialized_size + _FOOTER_END
            return footer, file.read_at(length, file.size() - length)
    except (OSError, pa.ArrowException) as error:
        raise CorruptError(f"{path}: {error}; write the file again") from error


def _row_groups(split: str, part: int, file: str, footer: pq.FileMetaData, footer_bytes: bytes, size: int) -> list[RowGroup]:
    """The row groups of a file, of the split that its first folder names, as in `train/…` or `split=train/…`, else of `split`. Their digest
    is one for all of them, of what is known of the file without reading its rows."""
    folder = file.partition("/")[0].removeprefix("split=")
    split = folder if "/" in file and folder in SPLITS else split
    digest = sha256(f"{file} {size}\n".encode() + footer_bytes).hexdigest()
    end = size - len(footer_bytes), checksum(footer_bytes), digest
    groups = []
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        chunks = [group.column(number) for number in range(group.num_columns)]
        starts = [min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0) for chunk in chunks]
        ends = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True)]
        first = min(starts, default=0)
        groups.append(RowGroup(split, part, index, file, group.num_rows, first, max(ends, default=0) - first, "", *end))
    return groups


def _column(field: pa.Field, target: str, path: str, classes: int | None) -> TensorColumn:
    try:
        dtype: Any = str(np.dtype(field.type.to_pandas_dtype()))
        if field.name == target:
            return TensorColumn(name=field.name, dtype=dtype, role="target", cardinality=classes)
        return TensorColumn(name=field.name, dtype=dtype, role="feature")
    except (NotImplementedError, TypeError, ConfigError) as error:
        raise DatasetError(
            f"{path}: column {field.name} is {field.type}; plain Parquet is read with columns of numbers only: encode it with jobs/etl.py"
        ) from error


def _names(columns: tuple[TensorColumn, ...]) -> str:
    return name_list([f"{column.name} {column.dtype}" for column in columns])


def commit_arrays(
    path: str,
    splits: Mapping[str, Sequence[Mapping[str, np.ndarray]]],
    encoders: dict[str, FittedEncoder],
    row_group_bytes: int = 16 * 2**20,
    **manifest_fields: Any,
) -> Version:
    """Write the only version of the dataset's folder `path`, and open it. A split is a list of parts, a part an array of shape (rows, …)
    for each encoder's column. `manifest_fields` are fields of the manifest. Raises DatasetError if the folder holds other rows already."""
    filesystem, folder = storage.locate(path)
    root = f"{folder}/{VERSION}"
    columns = tensor_columns(encoders)
    groups: list[RowGroup] = []
    for split, parts in splits.items():
        storage.make_folder(filesystem, f"{root}/data-{ATTEMPT}/split={split}")
        for number, part in enumerate(parts):
            file = f"data-{ATTEMPT}/split={split}/part-{number:05}.parquet"
            table = pa.Table.from_arrays([from_numpy(column, part[column.name]) for column in columns], schema=arrow_schema(columns))
            groups += write_part(filesystem, root, file, split, number, columns, table, row_group_bytes)
    commit(filesystem, root, _describe("arrays", encoders, groups, version=VERSION, attempt=ATTEMPT, **manifest_fields), groups)
    return open_version(path)


def _describe(name: str, encoders: dict[str, FittedEncoder], groups: list[RowGroup], **fields: Any) -> Manifest:
    """The manifest of these row groups; without `fields`, its version is the beginning of its digest."""
    digest = content_digest(encoders, groups)
    fields = {"version": digest[:12], "attempt": "", **fields}
    return Manifest(name=name, digest=digest, encoders=encoders, splits=split_summaries(encoders, groups), **fields)

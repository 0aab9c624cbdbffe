"""The table of files of Parquet, whose schema they have themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config.messages.words import name_list
from pipelines.data.features.auto.column_facts import ColumnFacts, convert_column
from pipelines.data.sources.files.content import file_errors
from pipelines.errors import SourceError
from pipelines.init.tables.column_types import type_forms, without_infinity
from pipelines.init.tables.header import tensor_column_names
from pipelines.init.tables.sample import PIECES, WHOLE_BYTES, SampledTable, even_files
from pipelines.init.tables.sql import renaming_query, sql_name

_MOST_DIGITS = 38
"""Of a decimal of Spark."""
_UNREADABLE = "unreadable"
_TYPES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20, 0)",
    "halffloat": _UNREADABLE,
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
}
"""Of columns that are no lists, decimals or times, by their type in Arrow."""


def read_parquet(paths: list[str], data: str) -> SampledTable:
    """The table. Raises SourceError for a file that cannot be read, without rows, or with other columns than the first."""
    sampled_paths = even_files(paths)
    parts, rows = list[pa.Table](), 0
    for path in sampled_paths:
        with file_errors(path), pq.ParquetFile(path) as file:
            _check_names(file.schema_arrow.names, path)
            rows += file.metadata.num_rows
            parts.append(sample_row_groups(file, WHOLE_BYTES // len(sampled_paths)))
        if parts[-1].schema.names != parts[0].schema.names:
            raise SourceError(f"{path} and {sampled_paths[0]} have different columns; give files that are alike")
    with file_errors(data):
        table = pa.concat_tables(parts, promote_options="permissive")
    if not len(table):
        raise SourceError(f"{data} has no rows; give a file that has some")
    ddl = {field.name: _spark_type(field.type) for field in table.schema}
    schema, doubts = dict[str, str](), tuple[str, ...]()
    if unread := [f"{name} ({table.schema.field(name).type})" for name, kind in ddl.items() if kind == _UNREADABLE]:
        readable = {name: kind for name, kind in ddl.items() if kind not in ("", _UNREADABLE)}
        schema = {"schema": ", ".join(f"{sql_name(name)} {kind}" for name, kind in readable.items())}
        doubts = (f"{name_list(unread)}: types that Spark does not read, so left out of the table's schema",)
        table = table.select(list(readable))
    is_complete = len(table) == rows and len(sampled_paths) == len(paths)
    all_rows = round(rows * len(paths) / len(sampled_paths))
    settings = {"format": "parquet", "path": data, **schema}
    return replace(sampled_table(settings, table, all_rows, is_complete), doubts=doubts, file_rows=tuple(map(len, parts)))


def sampled_table(settings: Mapping[str, Any], sample: pa.Table, rows: int, is_complete: bool) -> SampledTable:
    """The table of which `sample` has some of about so many `rows`, or all if it is complete; its columns have the types of Arrow's."""
    names = dict(zip(sample.column_names, tensor_column_names(sample.column_names), strict=True))
    converted = [convert_column(names[name], sample[name]) for name in sample.column_names]
    columns = [ColumnFacts(without_infinity(column)) for column in type_forms(converted)]
    raw_names = {new: raw for raw, new in names.items()}
    return SampledTable(settings, columns, rows, is_complete, select=renaming_query(names), raw_names=raw_names)


def _check_names(names: Sequence[str], path: str) -> None:
    """Raises SourceError for columns that Spark takes for one."""
    by_name: dict[str, list[str]] = {}
    for name in names:
        by_name.setdefault(name.lower(), []).append(name)
    if equal := next((same for same in by_name.values() if len(same) > 1), None):
        raise SourceError(
            f"{path} has columns {' and '.join(equal)}, which ETL takes for one, as it ignores case; rename them where the file is written"
        )


def _spark_type(kind: pa.DataType) -> str:
    """The type in a schema of a column that Spark reads, _UNREADABLE for one that it does not, and empty for others, as of structs."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _spark_type(kind.value_type)
        return f"array<{element}>" if element not in ("", _UNREADABLE) else element
    if pa.types.is_struct(kind) or pa.types.is_map(kind):
        inner = {_spark_type(kind.field(number).type) for number in range(kind.num_fields)}
        return _UNREADABLE if _UNREADABLE in inner else ""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})" if kind.precision <= _MOST_DIGITS else _UNREADABLE
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_time(kind):
        return _UNREADABLE
    return _TYPES.get(str(kind), "")


def sample_row_groups(file: pq.ParquetFile, most_bytes: int) -> pa.Table:
    """Row groups at even distances; of large ones, their first rows."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    row_bytes = sum(group.total_byte_size for group in groups) / max(file.metadata.num_rows, 1)
    most_rows = max(int(most_bytes / max(row_bytes, 1)), 1_000)
    if file.metadata.num_rows <= most_rows:
        return file.read()
    count = min(len(groups), PIECES)
    chosen = [len(groups) * piece // count for piece in range(count)]
    rows = max(most_rows // count, 1)
    return pa.Table.from_batches([next(file.iter_batches(batch_size=rows, row_groups=[group])) for group in chosen], file.schema_arrow)

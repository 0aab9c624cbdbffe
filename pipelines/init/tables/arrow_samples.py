"""The table of files that know the types of their columns, from the first rows of some of them."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pipelines.config.messages.words import name_list
from pipelines.data.features.auto.column_facts import ColumnFacts, convert_column
from pipelines.data.sources.arrow_files import ArrowReader, convert_array, spark_kind
from pipelines.errors import SourceError
from pipelines.init.tables.column_types import type_forms, without_infinity
from pipelines.init.tables.header import tensor_column_names
from pipelines.init.tables.sample import SampledTable, even_files
from pipelines.init.tables.sql import renaming_query

_SAMPLE_ROWS, _SAMPLE_BYTES = 100_000, 32 * 2**20


def table_of_batches(settings: dict[str, Any], paths: list[str], reader: ArrowReader, doubts: tuple[str, ...] = ()) -> SampledTable:
    """The table of the columns of the first file whose types Spark has. Raises SourceError for files without rows."""
    schema = reader.schema(paths[0])
    left_out = [f"{field.name} ({field.type})" for field in schema if spark_kind(field.type) is None]
    names = [field.name for field in schema if spark_kind(field.type) is not None]
    if left_out:
        raise SourceError(f"{paths[0]}: {name_list(left_out)}: types that Spark does not have; write them as others, or leave them out")
    sampled_paths = even_files(paths)
    parts, is_complete, file_rows = list[pa.Table](), len(sampled_paths) == len(paths), list[int]()
    for path in sampled_paths:
        rows, has_all = _first_rows(reader, path, names, _SAMPLE_ROWS // len(sampled_paths), _SAMPLE_BYTES // len(sampled_paths))
        parts.append(rows)
        file_rows.append(len(rows))
        is_complete &= has_all
    table = pa.concat_tables(parts, promote_options="permissive")
    if not len(table):
        raise SourceError(f"{paths[0]} has no rows; give files that have some")
    new_names = dict(zip(names, tensor_column_names(names), strict=True))
    columns = type_forms([convert_column(new_names[name], table[name]) for name in names])
    total = len(table) * len(paths) // len(sampled_paths)
    return SampledTable(
        settings,
        [ColumnFacts(without_infinity(column)) for column in columns],
        total,
        is_complete,
        select=renaming_query(new_names),
        doubts=doubts,
        raw_names={new: raw for raw, new in new_names.items()},
        file_rows=tuple(file_rows),
    )


def _first_rows(reader: ArrowReader, path: str, names: Sequence[str], most_rows: int, most_bytes: int) -> tuple[pa.Table, bool]:
    """The first rows of a file in the types of Spark, and whether they are all."""
    batches, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in reader.batches(path, names):
        if batches and (rows >= most_rows or size >= most_bytes):
            return pa.Table.from_batches(batches), False
        arrays = [convert_array(column, f"{path}: column {name}").values for name, column in zip(names, batch.columns, strict=True)]
        batches.append(pa.record_batch(arrays, names=list(names)))
        rows, size = rows + len(batch), size + batch.nbytes
    return pa.Table.from_batches(batches, None if batches else pa.schema([(name, pa.null()) for name in names])), True

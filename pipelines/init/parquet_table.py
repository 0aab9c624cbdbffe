"""The table of files of Parquet, whose schema they have themselves."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.data.sources.content import file_errors
from pipelines.errors import SourceError
from pipelines.init.columns import ColumnFacts
from pipelines.init.sample import PIECES, SAMPLE_BYTES, even_files
from pipelines.init.table import SampledTable
from pipelines.init.text_types import TypedColumn


def read_parquet(paths: list[str], data: str) -> SampledTable:
    """The table. Raises SourceError for a file that cannot be read, without rows, or with other columns than the first."""
    read = even_files(paths)
    parts, rows = list[pa.Table](), 0
    for path in read:
        with file_errors(path), pq.ParquetFile(path) as file:
            rows += file.metadata.num_rows
            parts.append(_sample(file, SAMPLE_BYTES // len(read)))
        if parts[-1].schema.names != parts[0].schema.names:
            raise SourceError(f"{path} and {read[0]} have different columns; give files that are alike")
    with file_errors(data):
        table = pa.concat_tables(parts, promote_options="permissive")
    if not len(table):
        raise SourceError(f"{data} has no rows; give a file that has some")
    columns = [ColumnFacts(_type(name, table[name])) for name in table.column_names]
    is_complete = len(table) == rows and len(read) == len(paths)
    return SampledTable({"format": "parquet", "path": data}, columns, round(rows * len(paths) / len(read)), is_complete)


def _sample(file: pq.ParquetFile, most_bytes: int) -> pa.Table:
    """Row groups at even distances; of large ones, their first rows."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    row_bytes = sum(group.total_byte_size for group in groups) / max(file.metadata.num_rows, 1)
    most_rows = max(int(most_bytes / max(row_bytes, 1)), 1_000)
    if file.metadata.num_rows <= most_rows:
        return file.read()
    count = min(len(groups), PIECES)
    chosen = [len(groups) * piece // count for piece in range(count)]
    return pa.Table.from_batches(list(_first_rows(file, chosen, max(most_rows // count, 1))), file.schema_arrow)


def _first_rows(file: pq.ParquetFile, groups: list[int], most_rows: int) -> Iterator[pa.RecordBatch]:
    for group in groups:
        yield from [next(file.iter_batches(batch_size=most_rows, row_groups=[group]))]


def _type(name: str, values: pa.ChunkedArray) -> TypedColumn:
    """The column in the types that facts are computed of."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return TypedColumn(name, "double", _flat(values.cast(pa.float64())))
    if pa.types.is_unsigned_integer(kind) or pa.types.is_signed_integer(kind):
        return TypedColumn(name, "long", _flat(values.cast(pa.int64(), safe=False)))
    if pa.types.is_boolean(kind):
        return TypedColumn(name, "boolean", _flat(values))
    if pa.types.is_timestamp(kind):
        return TypedColumn(name, "timestamp", pc.local_timestamp(_flat(values)) if kind.tz else _flat(values))
    if pa.types.is_date(kind):
        return TypedColumn(name, "date", _flat(values))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return TypedColumn(name, "string", _flat(values.cast(pa.large_string())))
    is_list = pa.types.is_list(kind) and (
        pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type) or pa.types.is_string(kind.value_type)
    )
    return TypedColumn(name, str(kind), _flat(values) if is_list else pa.nulls(len(values)))


def _flat(values: pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks()

"""The table of files of CSV, or of lines of aligned values."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.auto.column_facts import ColumnFacts, TypedColumn
from pipelines.data.sources.text.records import RECORD_BYTES
from pipelines.errors import SourceError
from pipelines.init.tables.cells import Cells, read_cells
from pipelines.init.tables.column_names import sql_name
from pipelines.init.tables.dialect import TableDialect, find_dialect
from pipelines.init.tables.encoding import find_encoding
from pipelines.init.tables.query import line_values_query
from pipelines.init.tables.sample import SAMPLE_BYTES, TextSample, even_files, sample_beginning, sample_text
from pipelines.init.tables.table import SampledTable
from pipelines.init.tables.text_types import missing_marks, type_columns

_MOST_MENDED = 100
BEGINNING_BYTES = RECORD_BYTES
"""The beginning of a large file, of which the first lines decide the dialect: the largest record that ETL reads."""


def read_delimited(paths: list[str], data: str, is_sure: bool) -> SampledTable | None:
    """The table; None if nothing divides the lines into values, unless they are surely a table.

    Raises SourceError for files without rows, of several encodings, with many broken records, or with different columns."""
    read = even_files(paths)
    samples = {path: sample_text(path, SAMPLE_BYTES // len(read)) for path in read}
    dialect = _find_dialect(samples)
    if not is_sure and not dialect.divides:
        return None
    if dialect.is_multiline:  # a piece may begin inside of a quoted value
        partial = [path for path, sample in samples.items() if not sample.is_complete]
        samples |= {path: sample_beginning(path, SAMPLE_BYTES // len(read), dialect.quote) for path in partial}
    for path, sample in samples.items():
        if (encoding := find_encoding(sample.data, path)) not in (dialect.encoding, "utf-8"):
            raise SourceError(f"{path} is {encoding}, and {read[0]} {dialect.encoding}; save all files in one encoding")
    cells = {path: read_cells(sample, dialect, path) for path, sample in samples.items()}
    _check_columns(cells)
    is_complete = len(read) == len(paths) and all(sample.is_complete for sample in samples.values())
    read_rows = sum(len(part.table) / samples[path].share for path, part in cells.items())
    return _table(cells, dialect, data, round(read_rows * len(paths) / len(read)), is_complete)


def _find_dialect(samples: Mapping[str, TextSample]) -> TableDialect:
    """The dialect of the first file. Raises SourceError if any is empty."""
    for path, sample in samples.items():
        if not sample.data.strip():
            raise SourceError(f"{path} is empty; give a file that has rows")
    path, first = next(iter(samples.items()))
    beginning = first if first.is_complete else sample_beginning(path, BEGINNING_BYTES)
    return find_dialect(beginning.data, find_encoding(first.data, path), is_cut=not beginning.is_complete)


def _table(cells: Mapping[str, Cells], dialect: TableDialect, data: str, rows: int, is_complete: bool) -> SampledTable:
    """The table of the cells of some files, of about so many `rows`."""
    table = pa.concat_tables([part.table for part in cells.values()])
    broken = sum(part.broken * len(part.table) for part in cells.values()) / max(len(table), 1)
    marks = missing_marks(table)
    mark = marks[0] if marks and not dialect.is_aligned else ""
    texts = {name: table[name].combine_chunks() for name in table.column_names}
    typed = [_without_dots(column) for column in type_columns(texts, mark, is_complete)]
    columns = [ColumnFacts(column) for column in typed]
    if dialect.is_aligned:
        settings: dict[str, Any] = {"format": "text", "path": data, **({"options": dialect.options} if dialect.options else {})}
        query = line_values_query({column.name: column.ddl for column in typed})
        return SampledTable(settings, columns, rows, is_complete, select=query, broken=broken)
    enforce = {} if all(part.has_plain_names for part in cells.values()) else {"enforceSchema": True}
    options = {**dialect.options, **enforce, **({"nullValue": mark} if mark else {})}
    schema = ", ".join(f"{sql_name(column.name)} {column.ddl}" for column in typed)
    settings = {"format": "csv", "path": data, "schema": schema, **({"options": options} if options else {})}
    return SampledTable(settings, columns, rows, is_complete, broken=broken)


def _check_columns(cells: Mapping[str, Cells]) -> None:
    first, expected = next((path, part.table.column_names) for path, part in cells.items())
    for path, part in cells.items():
        if (names := part.table.column_names) != expected:
            differing = sorted(set(names) ^ set(expected))[:4]
            raise SourceError(f"{path} and {first} have different columns, such as {', '.join(differing)}; give files that are alike")


def _without_dots(column: TypedColumn) -> TypedColumn:
    """A column whose values stand in some files with a dot at the end and in others without, as the labels of published tests do."""
    if column.ddl != "string" or column.sql or pc.count_distinct(column.values).as_py() > _MOST_MENDED:
        return column
    values = set(pc.unique(column.values.drop_null()).to_pylist())
    dotted = {value for value in values if value.endswith(".")}
    if not dotted or not all(value[:-1] in values for value in dotted):
        return column
    doubt = f"{column.name} has values with a dot at the end and without, which are taken for the same"
    return TypedColumn(column.name, "string", pc.utf8_rtrim(column.values, "."), "trim(TRAILING '.' FROM {})", doubt)

"""The table of files whose cells have types of their own, as workbooks and databases are."""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, time
from itertools import islice
from typing import Any

import pyarrow as pa

from pipelines.config.messages.words import name_list
from pipelines.data.features.auto.column_facts import ColumnFacts, TypedColumn
from pipelines.data.sources.cell_files import CellFault, FileReader
from pipelines.errors import SourceError
from pipelines.init.tables.column_types import type_values
from pipelines.init.tables.header import column_names
from pipelines.init.tables.sample import SampledTable, even_files
from pipelines.init.tables.sql import renaming_query, sql_name

SAMPLE_CELLS = 1_000_000
"""Of the first rows of the files; Excel's are read in five seconds."""
MOST_MISFITS = 0.01
"""Share of the values of a column that may be of another type than the others: ETL quarantines as many rows."""
_LEFT_OUT = ""
"""In place of a type: no column of a schema holds the values."""


def table_of_cells(
    settings: dict[str, Any], paths: list[str], reader: FileReader, header: list[str], file_rows: int | None, doubts: tuple[str, ...]
) -> SampledTable:
    """The table of the columns that have a name of their own. `file_rows` are those of the first file, if they are known."""
    names = [name for name in header if name and header.count(name) == 1]
    if not names:
        raise SourceError(
            f"{paths[0]} has no names of columns ({name_list(header)}); write them into the first row, or leave out N rows before "
            "them with --skip-rows N"
        )
    sampled_paths = even_files(paths)
    most_rows = max(SAMPLE_CELLS // len(names) // len(sampled_paths), 100)
    samples = [list(islice(reader(path, names), most_rows + 1)) for path in sampled_paths]
    rows = [values for sample in samples for _, values in sample[:most_rows]]
    if not rows:
        raise SourceError(f"{paths[0]} has a header, and no rows; give a file that has some")
    is_complete = len(sampled_paths) == len(paths) and all(len(sample) <= most_rows for sample in samples)
    typed = [
        (name, *type_cells(plain, [row[place] for row in rows], is_complete))
        for place, (name, plain) in enumerate(zip(names, column_names(names, len(names)), strict=True))
    ]
    columns = [(name, column) for name, column, _ in typed if column.ddl]
    left_out = [name for name, column, _ in typed if not column.ddl]
    if left_out:
        doubts = (*doubts, f"{name_list(left_out)}: values of several types, or bytes or times of day, so left out")
    schema = ", ".join(f"{sql_name(name)} {column.ddl}" for name, column in columns)
    select = renaming_query({name: column.name for name, column in columns})
    facts = [ColumnFacts(column) for _, column in columns]
    share = max((misfits for _, _, misfits in typed), default=0) / len(rows)
    total = file_rows if file_rows is not None else len(rows)
    all_rows = total * len(paths) // len(sampled_paths)
    return SampledTable({**settings, "schema": schema}, facts, all_rows, is_complete, select=select, broken=share, doubts=doubts)


def type_cells(name: str, values: Sequence[Any], is_complete: bool) -> tuple[TypedColumn, int]:
    """The column with the type of nearly all of its values, without one if they have several, and how many others there are."""
    values = [None if value == "" else value for value in values]
    sorts = [_sort(value) for value in values]
    counts = Counter(sort for sort in sorts if sort)
    if not counts or (counts.keys() == {"text", "number"} and all(_is_whole(value) for value in values if _sort(value) == "number")):
        texts = [str(int(value)) if isinstance(value, int | float) else value for value in values]
        return TypedColumn(name, "string", pa.array(texts, pa.large_string())), 0
    sort, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    misfits = counts.total() - count
    if misfits > MOST_MISFITS * counts.total():
        return TypedColumn(name, _LEFT_OUT, pa.nulls(len(values))), 0
    return _type(
        name, sort, [value if value_sort == sort else None for value, value_sort in zip(values, sorts, strict=True)], is_complete
    ), misfits


def _sort(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "boolean"
        case int() if abs(value) > sys.float_info.max:
            return "other"
        case int() | float():
            return "number"
        case str():
            return "text"
        case date():
            return "moment"
        case CellFault():
            return "error"
    return "other"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or float(value).is_integer()


def _type(name: str, sort: str, values: Sequence[Any], is_complete: bool) -> TypedColumn:
    match sort:
        case "number" if all(_is_whole(value) and abs(value) < 2**63 for value in values if value is not None):
            return type_values(name, [value if value is None else int(value) for value in values], is_complete)
        case "boolean" | "number" | "text":
            return type_values(name, values, is_complete)
        case "moment":
            moments = [value if isinstance(value, datetime) else value and datetime.combine(value, time()) for value in values]
            is_date = all(value is None or value.time() == time() for value in moments)
            array = pa.array(moments, pa.timestamp("us"))
            return TypedColumn(name, "date", array.cast(pa.date32())) if is_date else TypedColumn(name, "timestamp", array)
    return TypedColumn(name, _LEFT_OUT, pa.nulls(len(values)))

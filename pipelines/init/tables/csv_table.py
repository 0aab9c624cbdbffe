"""The table of files of CSV, or of lines of aligned values, whose texts are read as ETL will read them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pipelines.config.messages.words import name_list, show_count, verb_for
from pipelines.data.features.auto.column_facts import ColumnFacts, TypedColumn
from pipelines.data.sources.spark_sql import sql_text
from pipelines.data.sources.text import records
from pipelines.data.sources.text.records import RECORD_BYTES
from pipelines.errors import SourceError
from pipelines.init.tables.column_types import missing_marks, type_columns
from pipelines.init.tables.dialect import TableDialect, find_dialect, split_records
from pipelines.init.tables.header import Layout, column_names, find_layout, fit_names
from pipelines.init.tables.sample import (
    GUESSED,
    SampledTable,
    TextSample,
    even_files,
    find_encoding,
    most_bytes_per_file,
    sample_beginning,
    sample_text,
)
from pipelines.init.tables.sql import escape_braces, line_values_query, sql_name

MOST_BROKEN = 0.1
"""Share of broken records beyond which no config is drafted."""
BEGINNING_BYTES = RECORD_BYTES
"""The beginning of a large file, of which the first lines decide the dialect: the largest record that ETL reads."""
_BLOCK_BYTES = 16 * 2**20
_LEAST_SUMMED = 5
"""Rows above a line of totals."""
_MOST_MENDED = 100
"""Different values of a column whose dots at the end are looked at."""


@dataclass(frozen=True)
class _Cells:
    """The texts of a sample."""

    table: pa.Table
    """An empty value is NULL."""
    broken: float
    """Share of the records that are broken."""
    has_plain_names: bool
    """Whether the names of the columns are those of the header."""
    repeated_headers: int = 0
    """Records that repeat the header, which `table` does not have."""
    doubt: str = ""
    """What is wrong with the first broken record, and how many more there are."""


def read_delimited(paths: list[str], data: str, is_sure: bool, skip: int | None = None) -> SampledTable | None:
    """The table; None if nothing divides the lines into values, unless they are surely a table. `skip` lines at the start of each file are
    no part of it; None if that is to be found out.

    Raises SourceError for files without rows, of several encodings, with many broken records, or with different columns."""
    sampled_paths = even_files(paths)
    most_bytes = most_bytes_per_file(sampled_paths)
    samples = {path: sample_text(path, most_bytes) for path in sampled_paths}
    for path, sample in samples.items():
        if not sample.data.strip():
            raise SourceError(f"{path} is empty; give a file that has rows")
    first = samples[sampled_paths[0]]
    beginning = first if first.is_complete else sample_beginning(sampled_paths[0], BEGINNING_BYTES)
    encoding = find_encoding(first.data, sampled_paths[0])
    dialect, first_records = find_dialect(beginning.data, encoding, is_cut=not beginning.is_complete, skip=skip or 0)
    if not is_sure and not dialect.divides:
        return None
    layout = find_layout(dialect, first_records, sampled_paths[0], skip)
    if dialect.encoding in GUESSED:
        layout = replace(
            layout, doubts=(*layout.doubts, _doubt_of_encoding(samples[sampled_paths[0]].data, sampled_paths[0], dialect.encoding))
        )
    if layout.dialect.comment:
        layout = replace(layout, doubts=(*layout.doubts, _doubt_of_comments(samples.values(), layout.dialect)))
    if dialect.is_multiline:  # a piece may begin inside of a quoted value
        partial = [path for path, sample in samples.items() if not sample.is_complete]
        samples |= {path: sample_beginning(path, most_bytes, dialect.quote) for path in partial}
    for path, sample in samples.items():
        if (encoding := find_encoding(sample.data, path)) not in (dialect.encoding, "utf-8"):
            raise SourceError(f"{path} is {encoding}, and {sampled_paths[0]} {dialect.encoding}; save all files in one encoding")
    cells = {path: _read_cells(sample, layout, path) for path, sample in samples.items()}
    _check_columns(cells)
    is_complete = len(sampled_paths) == len(paths) and all(sample.is_complete for sample in samples.values())
    read_rows = sum(len(part.table) / samples[path].share for path, part in cells.items())
    return _table(cells, layout, data, round(read_rows * len(paths) / len(sampled_paths)), is_complete)


def _doubt_of_encoding(data: bytes, path: str, encoding: str) -> str:
    """An assumption about a text that is not UTF-8, with its first word that has other letters than ASCII's."""
    word = re.search(rb"[^\s,;|]*[\x80-\xff][^\s,;|]*", data)
    example = f", such as {word[0].decode(encoding, 'replace')[:40]!r}" if word else ""
    return f"{path} is not UTF-8, and is read as {encoding}{example}; for another, change encoding in the options of the table"


def _doubt_of_comments(samples: Iterable[TextSample], dialect: TableDialect) -> str:
    """The number of lines that are taken for comments, with the first of them."""
    start = f"\n{dialect.comment}"
    lines = [line for sample in samples for line in f"\n{sample.data.decode(dialect.encoding, 'replace')}".split(start)[1:]]
    example = f"{dialect.comment}{lines[0]}".splitlines()[0][:40] if lines else dialect.comment
    are = verb_for(len(lines), "is a comment, and no row", "are comments, and no rows")
    return (
        f"{show_count(len(lines), 'line')} of those read that {verb_for(len(lines), 'begins', 'begin')} with {dialect.comment}, such as "
        f"{example!r}, {are}; if it begins values, remove comment from the options of the table"
    )


def _read_cells(sample: TextSample, layout: Layout, path: str) -> _Cells:
    """The texts of a sample, by column.

    Raises SourceError for a file without rows, and for one with too many broken records."""
    dialect = layout.dialect
    data = sample.data if dialect.encoding == "utf-8" else sample.data.decode(dialect.encoding, "replace").encode()
    blocks = (data[start : start + _BLOCK_BYTES] for start in range(0, len(data), _BLOCK_BYTES))
    cut = pa.Table.from_batches(records.cut(blocks, replace(dialect.cutting, encoding="utf-8", header=False), path), records.SCHEMA)
    if len(cut) <= dialect.has_header:
        raise SourceError(f"{path} has no rows; give a file that has some")
    written = list(layout.names)
    if dialect.has_header and not cut["problem"][0].as_py():
        written = [name.strip() for name in next(split_records([cut["record"][0].as_py()], dialect), [])]
    header = fit_names(written, dialect.width)
    cut = cut.slice(dialect.has_header)
    width = max(dialect.width, 1)
    if dialect.has_header and (len(header) != width or bool(header[-1]) != bool(layout.names[-1])):
        differing = sorted(set(header) ^ set(layout.names))[:4]
        examples = ", ".join(differing) or f"{len(header)} names, not {len(layout.names)}"
        raise SourceError(f"{path} and the first file have different columns, such as {examples}; give files that are alike")
    names = column_names(header, width)
    table = _parse(cut.filter(pc.is_null(cut["problem"]))["record"], dialect, names)
    broken = len(cut) - len(table)
    repeated = _repeats_header(table, header) if len(header) == width else np.zeros(len(table), bool)
    table = table.filter(pa.array(~repeated))
    share = broken / len(cut)
    if share > MOST_BROKEN:
        raise SourceError(f"{path}: {100 * share:.0f} % of the records are broken ({_first_fault(cut, dialect)}); mend the file")
    of_those_read = "" if sample.is_complete else "of those read, "
    more = f" and {broken - 1:,} more are" if broken > 1 else " is"
    end = "left out by the query" if dialect.is_aligned else "refused by ETL"
    doubt = f"{path}: {of_those_read}{_first_fault(cut, dialect)}: it{more} {end}" if broken else ""
    return _Cells(table, share, not dialect.has_header or names == written, int(repeated.sum()), doubt)


def _repeats_header(table: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Which rows are the header once more, as where files were joined. The first value may have a byte order mark."""
    pairs = [(column, name) for column, name in zip(table.columns, names, strict=True) if name]
    if not pairs or len(table) == 0:
        return np.zeros(len(table), bool)
    masks = [pc.fill_null(pc.equal(pc.utf8_ltrim(pc.utf8_trim_whitespace(column), "\ufeff"), name), False) for column, name in pairs]
    return reduce(pc.and_, masks).to_numpy()


def _parse(sound: pa.ChunkedArray, dialect: TableDialect, names: Sequence[str]) -> pa.Table:
    """Records of as many values as there are names, as columns of text, with NULL for an empty value. Others are left out."""
    has_quotes = dialect.has_blanks and bool(dialect.quote)
    has_quotes_behind_blanks = has_quotes and bool(pc.any(pc.match_substring(sound, f" {dialect.quote}")).as_py())
    if dialect.is_aligned or len(dialect.separator) > 1 or has_quotes_behind_blanks:  # which Arrow does not take
        rows = (row for row in split_records(sound.to_pylist(), dialect) if len(row) == len(names))
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        texts = [pa.array(column, pa.large_string()) for column in columns]
    else:
        parsed = pyarrow.csv.read_csv(
            pa.BufferReader(b"\n".join(sound.cast(pa.large_binary()).to_pylist())),
            pyarrow.csv.ReadOptions(column_names=names, block_size=max(_BLOCK_BYTES, 2 * (pc.max(pc.binary_length(sound)).as_py() or 0))),
            pyarrow.csv.ParseOptions(
                delimiter=dialect.separator,
                quote_char=dialect.quote or False,
                escape_char=dialect.escape or False,
                newlines_in_values=dialect.is_multiline,
                invalid_row_handler=lambda row: "skip",
            ),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False),
        )
        texts = [column.combine_chunks() for column in parsed.columns]
    if dialect.has_blanks:
        texts = [pc.utf8_trim(column, " \t") for column in texts]
    null = pa.scalar(None, pa.large_string())
    return pa.table([pc.if_else(pc.equal(pc.binary_length(column), 0), null, column) for column in texts], names)


def _first_fault(cut: pa.Table, dialect: TableDialect) -> str:
    """The line of the first broken record, and what is wrong there."""
    faults = []
    if problem := cut.filter(pc.is_valid(cut["problem"])).slice(0, 1).to_pylist():
        faults.append((problem[0]["line"], f"line {problem[0]['line']:,}: {problem[0]['problem']}"))
    sound = cut.filter(pc.is_null(cut["problem"])).slice(0, 100_000)
    widths = [len(values) for values in split_records(sound["record"].to_pylist(), dialect)]
    place = next((place for place, width in enumerate(widths) if width != dialect.width), None)
    if place is not None:
        line = sound["line"][place].as_py()
        faults.append((line, f"line {line:,} has {show_count(widths[place], 'value')}, and most have {dialect.width}"))
    return min(faults)[1] if faults else "a record is of another width"


def _check_columns(cells: Mapping[str, _Cells]) -> None:
    first, expected = next((path, part.table.column_names) for path, part in cells.items())
    for path, part in cells.items():
        names = part.table.column_names
        if sorted(names) == sorted(expected) and names != expected:
            place = next(place for place, name in enumerate(names) if name != expected[place])
            raise SourceError(
                f"{path} has the columns of {first} in another order: column {place + 1} is {names[place]}, not {expected[place]}; write "
                "them in one order, or give one of the files, and join the other in source.query"
            )
        if names != expected:
            differing = sorted(set(names) ^ set(expected))[:4]
            raise SourceError(f"{path} and {first} have different columns, such as {', '.join(differing)}; give files that are alike")


def _table(cells: Mapping[str, _Cells], layout: Layout, data: str, rows: int, is_complete: bool) -> SampledTable:
    """The table of the cells of some files, of about so many `rows`."""
    dialect = layout.dialect
    table = pa.concat_tables([part.table for part in cells.values()])
    table, total = _without_total(table) if is_complete and len(cells) == 1 else (table, None)
    broken = sum(part.broken * len(part.table) for part in cells.values()) / max(len(table), 1)
    doubts = [*layout.doubts, *(part.doubt for part in cells.values() if part.doubt)]
    typed, mark = _type_columns(table, is_complete)
    if mark:
        marked = [name for name in table.column_names if pc.any(pc.equal(table[name], mark)).as_py()]
        doubts.append(f"{mark} is a missing value, as in {name_list(marked)}: nullValue in the options of the table")
    ddl = {column.name: column.ddl for column in typed}
    columns = [ColumnFacts(column) for column in typed]
    if dialect.is_aligned:
        settings: dict[str, Any] = {"format": "text", "path": data, **({"options": dialect.options} if dialect.options else {})}
        query = line_values_query(ddl, layout.names, mark, bool(dialect.quote))
        return SampledTable(settings, columns, rows, is_complete, select=query, doubts=tuple(doubts))
    is_renamed = dialect.has_header and not all(part.has_plain_names for part in cells.values())
    options = {**dialect.options, **({"enforceSchema": True} if is_renamed else {}), **({"nullValue": mark} if mark else {})}
    schema = ", ".join(f"{sql_name(name)} {kind}" for name, kind in ddl.items())
    settings = {"format": "csv", "path": data, "schema": schema, **({"options": options} if options else {})}
    conditions = []
    if repeated := sum(part.repeated_headers for part in cells.values()):
        if set(ddl.values()) == {"string"}:
            named = dict(zip(table.column_names, layout.names, strict=True))
            conditions.append(_exclusion(dict(list(named.items())[1:]) or named))  # the first may have a byte order mark
        else:
            broken += repeated / max(len(table) + repeated, 1)
        are = verb_for(repeated, "repeats the names of the columns, and is no row", "repeat the names of the columns, and are no rows")
        doubts.append(f"{show_count(repeated, 'line')} {are}")
    if total:
        if any(_number(text) is None and ddl[name] != "string" for name, text in total.items()):  # which the reader refuses
            broken += 1 / (len(table) + 1)
        else:
            conditions.append(_exclusion(total, ddl))
        last_line = f"the last line ({', '.join(total.values())})"
        doubts.append(f"{last_line} has totals of the lines before it, and is no row: the query leaves it out")
    select = f"SELECT * FROM {{}} WHERE {' AND '.join(conditions)}" if conditions else "*"
    file_rows = tuple(len(part.table) for part in cells.values())
    return SampledTable(settings, columns, rows, is_complete, select=select, broken=broken, doubts=tuple(doubts), file_rows=file_rows)


def _type_columns(table: pa.Table, is_complete: bool) -> tuple[list[TypedColumn], str]:
    """The columns with their types, and the text that stands for a missing value; empty if none does.

    Values that stand in some files with a dot at the end and in others without, as the labels of published tests do, are the same."""
    mark = next(iter(missing_marks(table)), "")
    columns = type_columns({name: table[name].combine_chunks() for name in table.column_names}, mark, is_complete)
    for place, column in enumerate(columns):
        if column.ddl != "string" or column.sql or pc.count_distinct(column.values).as_py() > _MOST_MENDED:
            continue
        values = set(pc.unique(column.values.drop_null()).to_pylist())
        dotted = {value for value in values if value.endswith(".")}
        if dotted and all(value[:-1] in values for value in dotted):
            doubt = f"{column.name} has values with a dot at the end and without, which are taken for the same"
            columns[place] = TypedColumn(column.name, "string", pc.utf8_rtrim(column.values, "."), "trim(TRAILING '.' FROM {})", doubt)
    return columns, mark


def _exclusion(values: Mapping[str, str], ddl: Mapping[str, str] | None = None) -> str:
    """The condition, as text to be formatted, of rows that differ from these values. `ddl` has the types of columns, by default texts."""
    texts = {name: sql_text(text) if not ddl or ddl[name] == "string" else text for name, text in values.items() if text}
    condition = f"NOT ({' AND '.join(f'{sql_name(name)} <=> {text}' for name, text in texts.items())})"
    return escape_braces(condition)


def _without_total(table: pa.Table) -> tuple[pa.Table, dict[str, str] | None]:
    """The table without its last row, and the texts of that, if each of its numbers is the sum or the mean of those above it; without
    numbers, if it is empty where no row above is. What it has besides stands in no other row."""
    if len(table) <= _LEAST_SUMMED:
        return table, None
    above = table.slice(0, len(table) - 1)
    last = {name: table[name][len(table) - 1].as_py() for name in table.column_names}
    filled = {name: text for name, text in last.items() if text is not None}
    numbers = {name: number for name, text in filled.items() if (number := _number(text)) is not None}
    words = {name: text for name, text in filled.items() if name not in numbers}
    is_new = not any(pc.any(pc.equal(above[name], text)).as_py() for name, text in words.items())
    is_total = bool(numbers) and all(_is_total(above[name], number) for name, number in numbers.items())
    is_empty = bool(words) and not numbers and len(words) < len(last) and all(above[name].null_count == 0 for name in last)
    return (above, words or filled) if is_new and (is_total or is_empty) else (table, None)


def _is_total(column: pa.ChunkedArray, number: float) -> bool:
    """Whether a number is the sum of those of a column, or their mean, as far as it is written out."""
    texts = column.drop_null()
    values = texts.filter(pc.match_substring_regex(texts, r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$")).cast(pa.float64())
    if len(values) < 0.9 * len(texts) or len(values) < _LEAST_SUMMED:
        return False
    total = pc.sum(values).as_py()
    return any(abs(number - summary) <= 1e-6 * max(map(abs, (number, summary))) for summary in (total, total / len(values)) if summary)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

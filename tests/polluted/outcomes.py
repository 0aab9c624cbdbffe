"""What becomes of a polluted file: the rows that its draft and ETL give, in one process without Spark, beside the clean ones.

Records are cut by the code that ETL runs. Their values are parsed here by the same grammar, and `typed.values` stand for what the draft's
SQL makes of them. A test compares both with Spark's own reading of a sample of the cases.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import sqlglot

from pipelines.config.source.table_settings import spark_options
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.sources.text.csv import cutting_rules
from pipelines.data.sources.text.records import Dialect, cut
from pipelines.errors import LockstepError
from pipelines.init.tables.date_columns import add_moments
from pipelines.init.tables.find_table import find_table
from pipelines.init.tables.sample import SampledTable
from polluted.pollutions import Polluted, Value

Kind = Literal["right", "refused", "said", "wrongly refused", "silently wrong"]
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_JOINT = "\x1e"
"""In place of a separator of several characters, which Python's reader does not take."""


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    reason: str = ""

    @property
    def is_good(self) -> bool:
        return self.kind in ("right", "refused")


@dataclass(frozen=True)
class Difference:
    """How the rows that are read differ from the clean ones."""

    text: str
    columns: frozenset[str] = frozenset()
    """Those whose values differ, if nothing else does."""
    lines: frozenset[int] = frozenset()
    """Those that a doubt may name otherwise: the rows that are missing, and what pollutes the file."""


def judge(polluted: Polluted, folder: Path) -> Outcome:
    """The outcome of one file, which is written into the folder."""
    path = folder / "table.csv"
    path.write_bytes(polluted.content)
    try:
        table = find_table(str(path))
        assert table is not None
        table = add_moments(table)
        rows = read_rows(table, path)
    except LockstepError as error:
        is_proper = bool(_find_line_numbers(str(error)) & (polluted.broken_lines or polluted.changed_lines | {1}))
        return Outcome("refused" if is_proper else "wrongly refused", str(error))
    difference = compare(table, rows, polluted)
    if not difference:
        return Outcome("right")
    return Outcome("said" if _is_said(table, difference) else "silently wrong", difference.text)


def _is_said(table: SampledTable, difference: Difference) -> bool:
    """Whether a doubt names each column that differs, or one of the lines."""
    by_name = {column.name: column.typed.doubt for column in table.columns}
    if difference.columns:
        return all(re.search(rf"(?:^|values of ){re.escape(name)}\b", by_name[name]) for name in difference.columns)
    return any(_find_line_numbers(doubt) & difference.lines for doubt in table.doubts)


def _find_line_numbers(text: str) -> set[int]:
    """The numbers of the lines that a text names."""
    spans = re.findall(r"lines? ([0-9,]*[0-9])(?: to ([0-9,]*[0-9]))?", text)
    numbers = [[int(number.replace(",", "")) for number in span if number] for span in spans]
    return {number for span in numbers for number in range(span[0], span[-1] + 1)}


def read_rows(table: SampledTable, path: Path) -> list[tuple[Any, ...]]:
    """The rows that ETL would make by the draft of a complete sample. Raises SourceError as ETL does."""
    settings = table.settings
    options = spark_options(settings.get("options", {}))
    is_text = settings["format"] == "text"
    names = [column.name for column in table.columns]
    rules = Dialect(keep_blank=True, encoding=options.get("encoding", "utf-8")) if is_text else cutting_rules(options, names)
    records = [row for batch in cut([path.read_bytes()], rules, str(path)) for row in batch.to_pylist() if row["problem"] is None]
    if is_text:
        raw = [record["record"].split() for record in records if record["record"].strip()]
        raw = [row for row in raw if len(row) == len(names)]
        places = list(range(len(raw)))
    else:
        raw = [row for record in records if len(row := split(record["record"], options)) == len(names)]
        places = _select_rows(table.select, names, raw)
    fitting = [place for place in places if is_text or all(map(_fits, raw[place], table.columns))]
    typed = list(zip(*(column.typed.values.to_pylist() for column in table.columns), strict=True))
    if len(typed) == len(fitting):  # what the reader refuses, the draft has not
        return typed
    if len(typed) != len(places):
        raise AssertionError(f"the draft has {len(typed)} rows, and ETL {len(fitting)} of {len(places)}")
    return [row for place, row in zip(places, typed, strict=True) if place in set(fitting)]


def split(record: str, options: dict[str, str]) -> list[str | None]:
    """The values of a record, as Spark's parser splits it; None for those that are missing."""
    separator, quote = options.get("sep", ",").replace("\\t", "\t"), options.get("quote", '"')
    escape = options.get("escape", "")
    joint = separator if len(separator) == 1 else _JOINT
    settings: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    settings |= {"escapechar": escape, "doublequote": False} if escape else {}
    trims = options.get("ignoreleadingwhitespace") == "true"
    text = record.replace(separator, joint)
    texts = next(csv.reader([text], delimiter=joint, skipinitialspace=trims, **settings))
    texts = [value.replace(joint, separator) for value in texts]
    texts = [value.strip(" \t") for value in texts] if trims else texts
    return [None if value in ("", options.get("nullvalue", "")) else value for value in texts]


def _select_rows(select: str, names: Sequence[str], raw: list[list[str | None]]) -> list[int]:
    """The places of the rows that the draft's query keeps."""
    if select == "*":
        return list(range(len(raw)))
    columns = {name: pa.array([row[place] for row in raw], pa.string()) for place, name in enumerate(names)}
    t = pa.table({**columns, "place of the row": range(len(raw))})
    query = sqlglot.transpile(select.format("t"), read="databricks", write="duckdb")[0]
    rows = duckdb.connect().register("t", t).sql(query)
    return [row[0] for row in rows.select('"place of the row"').fetchall()]


def _fits(text: str | None, column: ColumnFacts) -> bool:
    """Whether ETL takes a text for a value of its column's type in the schema."""
    if text is None:
        return True
    match column.typed.ddl:
        case "int" | "long":
            return _WHOLE.fullmatch(text) is not None
        case "double":
            return _FRACTION.fullmatch(text) is not None
        case "boolean":
            return text.lower() in ("true", "false")
        case "date" | "timestamp":
            try:
                datetime.fromisoformat(text.removesuffix(" UTC"))
            except ValueError:
                return False
    return True


def compare(table: SampledTable, rows: list[tuple[Any, ...]], polluted: Polluted) -> Difference | None:
    """How the rows differ from the clean ones; None if they do not."""
    clean, width = polluted.clean, len(polluted.clean.columns)
    names = [column.name for column in table.columns]
    changed = frozenset(polluted.changed_lines) | polluted.broken_lines
    if len(names) != width + polluted.extra_columns:
        return Difference(f"{len(names)} columns: {', '.join(names[:9])}", lines=changed)
    if any(value is not None for row in rows for value in row[width:]):
        return Difference("values in a column that has none", lines=changed)
    if polluted.names and names[:width] != list(polluted.names):
        return Difference(f"the names are {', '.join(names[:9])}", lines=changed | {1})
    for place, (name, values) in enumerate(clean.columns.items()):
        if wrong := _other_type(values, [row[place] for row in rows]):
            return Difference(f"column {names[place]} ({name}) is {wrong}", columns=frozenset({names[place]}))
    return _compare_rows([row[:width] for row in rows], polluted, names, changed)


def _compare_rows(rows: list[tuple[Any, ...]], polluted: Polluted, names: Sequence[str], changed: frozenset[int]) -> Difference | None:
    """How rows of the right columns differ. A row without any value is none for ETL."""
    clean_rows = [(number, tuple(map(_key, row))) for number, row in enumerate(polluted.clean.rows) if any(_has_values(row))]
    read = [tuple(map(_key, row)) for row in rows if any(_has_values(row))]
    expected = [row for _, row in clean_rows]
    sound = [row for number, row in clean_rows if number not in polluted.broken_rows]
    if read in (sound, expected):
        return None
    if len(read) == len(expected):
        pairs = [(row, clean_row, number) for row, (number, clean_row) in zip(read, clean_rows, strict=True) if row != clean_row]
        if all(number in polluted.broken_rows for _, _, number in pairs):
            # A quote is none where no value is quoted.
            pairs = [pair for pair in pairs if _without_quotes(pair[0]) != _without_quotes(pair[1])]
            differing = {
                name for row, clean_row, _ in pairs for name, value, other in zip(names, row, clean_row, strict=False) if value != other
            }
            return Difference(str(pairs)[:240], columns=frozenset(differing)) if pairs else None
    missing, extra = Counter(sound) - Counter(read), Counter(read) - Counter(expected)
    if not missing and not extra:
        return Difference("rows in another order")
    rows_missing = {line for number, row in clean_rows if row in missing for line in polluted.lines_of_row(number)}
    text = f"{missing.total()} rows missing, {extra.total()} rows too many: {_first(extra)} for {_first(missing)}"
    return Difference(text, lines=changed | rows_missing)


def _has_values(row: tuple[Any, ...]) -> Iterable[bool]:
    return (value is not None for value in row)


def _without_quotes(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(re.sub("['\"]", "", str(value)) for value in row)


def _first(rows: Iterable[Any]) -> str:
    return str(next(iter(rows), "none"))[:120]


def _other_type(expected: list[Value], read: list[Any]) -> str:
    """The type of a column if it is another than that of the clean values."""
    clean_value = next((value for value in expected if value is not None), None)
    read_value = next((value for value in read if value is not None), None)
    if isinstance(clean_value, float):
        return "" if isinstance(read_value, int | float) and not isinstance(read_value, bool) else type(read_value).__name__
    if isinstance(clean_value, date):
        return "" if isinstance(read_value, date) else type(read_value).__name__
    return ""


def _key(value: Any) -> Any:
    """Equal for equal values: numbers up to 9 digits, days as moments, texts of numbers as numbers."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and _FRACTION.fullmatch(value):
        value = float(value)
    if isinstance(value, int | float):
        return float(f"{value:.9g}")
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    return value

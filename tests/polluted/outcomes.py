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

from pipelines.config.source.options import spark_options
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.sources.text.csv import cutting_rules
from pipelines.data.sources.text.records import Dialect, cut
from pipelines.errors import LockstepError
from pipelines.init.tables.files import find_table
from pipelines.init.tables.moments import add_moments
from pipelines.init.tables.table import SampledTable
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
        named = {int(number.replace(",", "")) for number in re.findall(r"line ([0-9,]+)", str(error))}
        is_proper = bool(named & polluted.broken_lines) if polluted.broken_lines else bool(named)
        return Outcome("refused" if is_proper else "wrongly refused", str(error))
    difference = compare(table, rows, polluted)
    if not difference:
        return Outcome("right")
    doubts = " ".join([*table.doubts, *(column.typed.doubt for column in table.columns)])
    return Outcome("said" if _names(doubts, difference, table) else "silently wrong", difference)


def _names(doubts: str, difference: str, table: SampledTable) -> bool:
    """Whether the doubts name the column that differs, or the lines."""
    differing = [column.name for column in table.columns if difference.startswith(f"column {column.name} ")]
    is_about_lines = difference.startswith("the names are") or "rows missing" in difference
    return any(re.search(rf"\b{re.escape(name)}\b", doubts) for name in differing) or (is_about_lines and "line" in doubts)


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


def compare(table: SampledTable, rows: list[tuple[Any, ...]], polluted: Polluted) -> str:
    """How the rows differ from the clean ones; empty if they do not."""
    clean, width = polluted.clean, len(polluted.clean.columns)
    names = [column.name for column in table.columns]
    if len(names) != width + polluted.extra_columns:
        return f"{len(names)} columns: {', '.join(names[:9])}"
    if any(value is not None for row in rows for value in row[width:]):
        return "values in a column that has none"
    if polluted.names and names[:width] != list(polluted.names):
        return f"the names are {', '.join(names[:9])}"
    for place, (name, values) in enumerate(clean.columns.items()):
        if wrong := _other_type(values, [row[place] for row in rows]):
            return f"column {names[place]} ({name}) is {wrong}"
    # A row without any value is none for ETL.
    expected = [(tuple(map(_key, row)), number in polluted.broken_rows) for number, row in enumerate(clean.rows) if any(_has_values(row))]
    read = [tuple(map(_key, row[:width])) for row in rows if any(_has_values(row))]
    sound = [row for row, may_miss in expected if not may_miss]
    if read == sound or read == [row for row, _ in expected]:
        return ""
    if len(read) == len(expected) and all(
        row == values or (may_miss and _without_quotes(row) == _without_quotes(values))
        for row, (values, may_miss) in zip(read, expected, strict=True)
    ):
        return ""  # a quote that is none where no value is quoted
    missing, extra = Counter(sound) - Counter(read), Counter(read) - Counter(row for row, _ in expected)
    if not missing and not extra:
        return "rows in another order"
    return f"{missing.total()} rows missing, {extra.total()} rows too many: {_first(extra)} for {_first(missing)}"


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

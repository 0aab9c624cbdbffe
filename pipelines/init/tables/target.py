"""The target: the column to predict, and what kind of value it has."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipelines.config.messages.did_you_mean import name_list, suggestion
from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.errors import ConfigError
from pipelines.init.tables.column_names import column_names, sql_text
from pipelines.init.tables.table import SampledTable

NAMES = ("target", "label", "class", "y", "outcome")
"""Names of columns that are a target wherever they stand."""
MOST_CLASSES = 200
MOST_NUMBERED_CLASSES = 20
"""Different whole numbers that are taken for classes."""
RARE_SHARE = 0.05
"""Share of the rows below which a class is rare."""
_LEAST_ROWS_OF_A_RARE_CLASS = 20
FEW_ROWS = 50
"""Rows of a class below which a hash may leave a split without it."""
_QUANTITY = re.compile(r"rating|score|quality|count|number|amount|age$|years?|hours?|days?|price|stars", re.IGNORECASE)
_POSITIVE = ("yes", "y", "true", "t", "1", "positive", "pos")


@dataclass(frozen=True)
class TargetChoice:
    """The target and how it is encoded."""

    column: ColumnFacts
    kind: Literal["two classes", "classes", "number"]
    encoder: str
    reason: str
    sql: str = ""
    """What the query makes of it, with {} for its name; empty if it is used as it is."""
    has_rare_class: bool = False
    doubts: tuple[str, ...] = ()

    @property
    def has_classes(self) -> bool:
        return self.kind != "number"

    def fewest_rows(self, rows: int) -> int:
        """About how many of the table's `rows` have the rarest class, if a hash may deal too few of them to a split; else 0."""
        if not self.has_classes:
            return 0
        fewest = round(float(self.column.counts[1][-1]) * rows / len(self.column.filled))
        return max(fewest, 1) if self.has_rare_class or fewest < FEW_ROWS else 0


def choose_target(table: SampledTable, name: str, data: str) -> TargetChoice:
    """The target that is asked for, or else one by its name, or else the last column.

    Raises ConfigError for a name that is no column, and for a column that cannot be predicted."""
    names = [column.name for column in table.columns]
    if len(names) < 2:
        raise ConfigError(f"{data} has one column, {names[0]}, and a table needs a target and a feature; give data with more columns")
    raw_names = {raw: new for new, raw in table.raw_names.items()}
    chosen = raw_names.get(name) or (_match_name(names, name, data) if name else _default_name(names))
    column = table.column(chosen)
    doubts = () if name else (f"the target is {chosen}, {_why(chosen)}; for another column, --target NAME",)
    return _describe(column, doubts, data)


def _match_name(names: Sequence[str], name: str, data: str) -> str:
    plain = column_names([name], 1)[0]
    if chosen := next((other for other in names if other in (name, plain)), ""):
        return chosen
    if chosen := next((other for other in names if other.lower() == plain.lower()), ""):
        return chosen
    remedy = suggestion(name, names, "name one of these")
    raise ConfigError(f"--target is {name}, which is no column of {data}: {name_list(names, name)}; {remedy}")


def _default_name(names: Sequence[str]) -> str:
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in NAMES if name in lower), names[-1])


def _why(name: str) -> str:
    return "by its name" if name.lower() in NAMES else "the last column"


def _describe(column: ColumnFacts, doubts: tuple[str, ...], data: str) -> TargetChoice:
    if column.kind in ("moment", "list", "other"):
        raise ConfigError(
            f"{data}: the target {column.name} is of type {column.typed.ddl}; name a column of numbers or classes with --target"
        )
    if column.distinct < 2:
        value = column.filled[0].as_py() if len(column.filled) else "NULL"
        raise ConfigError(f"{data}: the target {column.name} is {value} in every row; name a column that varies with --target")
    if column.distinct == 2:
        return _two_classes(column, doubts)
    if column.kind == "number":
        return _number_or_classes(column, doubts)
    if column.distinct > min(MOST_CLASSES, column.rows / 4):
        raise ConfigError(
            f"{data}: the target {column.name} has {column.distinct:,} different texts in {column.rows:,} rows, too many for classes; "
            "name a column of numbers or classes with --target"
        )
    return _classes(column, doubts)


def _two_classes(column: ColumnFacts, doubts: tuple[str, ...]) -> TargetChoice:
    values, rows = column.counts
    share = float(min(rows) / sum(rows))
    rare = share < RARE_SHARE and min(rows) >= _LEAST_ROWS_OF_A_RARE_CLASS
    if column.kind == "boolean" or (column.kind == "number" and {float(value) for value in values} == {0.0, 1.0}):
        sql = "CAST({} AS int)" if column.typed.ddl == "double" else ""
        return TargetChoice(column, "two classes", "binary", f"two classes, the rarer {100 * share:.2g} % of the rows", sql, rare, doubts)
    positive = next((value for value in values if str(value).lower() in _POSITIVE), values[1])
    negative = next(value for value in values if value != positive)
    literal = _show_number(positive) if column.kind == "number" else sql_text(str(positive)).replace("{", "{{").replace("}", "}}")
    percent = 100 * rows[list(values).index(positive)] / sum(rows)
    reason = f"two classes: {_show(positive)} is true, in {percent:.2g} % of the rows, and {_show(negative)} false"
    return TargetChoice(column, "two classes", "binary", reason, f"{{}} = {literal}", rare, doubts)


def _number_or_classes(column: ColumnFacts, doubts: tuple[str, ...]) -> TargetChoice:
    if (
        column.is_whole
        and column.distinct <= MOST_NUMBERED_CLASSES
        and not _QUANTITY.search(column.name)
        and column.rows > 5 * column.distinct
    ):
        doubt = f"the {column.distinct} whole numbers of {column.name} are classes; for a quantity, set its encoder to standardize"
        return _classes(column, (*doubts, doubt))
    return TargetChoice(
        column, "number", "standardize", f"a number, from {column.numbers[0]:g} to {column.numbers[-1]:g}", "", False, doubts
    )


def _classes(column: ColumnFacts, doubts: tuple[str, ...]) -> TargetChoice:
    rows = column.counts[1]
    share = float(rows[-1] / sum(rows))
    rare = share * len(rows) < RARE_SHARE * 2 and rows[-1] >= _LEAST_ROWS_OF_A_RARE_CLASS
    sql = "CAST({} AS int)" if column.typed.ddl == "double" else ""
    return TargetChoice(column, "classes", "label", f"{len(rows)} classes, the rarest {100 * share:.2g} % of the rows", sql, rare, doubts)


def _show_number(value: Any) -> str:
    """The number with all of its digits, which a query compares with; a whole one without a point."""
    number = value.item()
    return str(int(number)) if float(number).is_integer() and abs(number) < 2**53 else repr(number)


def _show(value: Any) -> str:
    return _show_number(value) if isinstance(value, np.number) else str(value)[:40]

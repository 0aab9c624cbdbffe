"""The target: the column to predict, and what kind of value it has."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from pipelines.config.messages.words import MOST_SHOWN, name_list, show_count, suggestion, verb_for
from pipelines.data.features.auto.column_facts import ColumnFacts, is_identifier, is_row_number
from pipelines.data.sources.spark_sql import sql_text
from pipelines.errors import ConfigError
from pipelines.init.tables.dialect import MARKS
from pipelines.init.tables.header import column_names
from pipelines.init.tables.sample import SampledTable
from pipelines.init.tables.sql import escape_braces, sql_name

NAMES = ("target", "label", "class", "y", "outcome")
"""Names of columns that are a target wherever they stand."""
MOST_CLASSES = 200
MOST_NUMBERED_CLASSES = 20
"""Different whole numbers that are taken for classes."""
RARE_SHARE = 0.05
"""Share of the rows below which a class is rare."""
_LEAST_ROWS_OF_A_RARE_CLASS = 20
SPLIT_COUNT = 3
"""Training, validation and test."""
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
    further: tuple[ColumnFacts, ...] = ()
    """Further columns of numbers that are predicted with it."""

    @property
    def columns(self) -> tuple[ColumnFacts, ...]:
        return (self.column, *self.further)

    def holds(self, column: ColumnFacts) -> bool:
        """Whether it is made of that column."""
        return any(column is part for part in self.columns)

    @property
    def has_classes(self) -> bool:
        return self.kind != "number"

    @property
    def is_judged_by_precision(self) -> bool:
        """Whether models are compared by their average precision: the area under the ROC curve hardly says which finds the rare rows."""
        return self.has_rare_class and self.kind == "two classes"

    def fewest_rows(self, rows: int) -> int:
        """About how many of the table's `rows` have the rarest class, if a hash may deal too few of them to a split; else 0."""
        if not self.has_classes:
            return 0
        fewest = round(float(self.column.counts[1][-1]) * rows / len(self.column.filled))
        return max(fewest, 1) if self.has_rare_class or fewest < FEW_ROWS else 0


def choose_target(table: SampledTable, name: str, data: str) -> tuple[SampledTable, TargetChoice]:
    """The target that is asked for, or else one by its name, or else the last column, and the table, in which classes that differ in
    blanks and capitals are one. A name may be those of several columns with commas between.

    Raises ConfigError for a name that is no column, and for a column that cannot be predicted."""
    names = [column.name for column in table.columns]
    if len(names) < 2:
        is_number = table.columns[0].kind == "number"
        series = "; of a series, also the date, the time or the number of each row in order is one" if is_number else ""
        raise ConfigError(
            f"{data} has one column, {names[0]}, and a table needs a target and a feature; give data with more columns{series}"
        )
    raw_names = {raw: new for new, raw in table.raw_names.items()}
    if not name:
        chosen = _default_name(names)
        why = "by its name" if chosen.lower() in NAMES else "the last column"
        doubts: tuple[str, ...] = (f"the target is {chosen}, {why}; for another column, --target NAME",)
    elif "," in name and not _match_name(names, raw_names, name):
        parts = [part.strip() for part in name.split(",") if part.strip()]
        return table, _numbers([table.column(_find_name(names, raw_names, part, data)) for part in dict.fromkeys(parts)], data)
    else:
        chosen, doubts = _find_name(names, raw_names, name, data), ()
    column = table.column(chosen)
    if column.kind == "text" and (merged := _merge_spellings(column)):
        columns = [merged if other is column else other for other in table.columns]
        table, column = replace(table, columns=columns), merged
    marks = [(value, rows) for value, rows in zip(*column.counts, strict=True) if value in MARKS] if column.kind == "text" else []
    doubts += tuple(
        f"{value} of {chosen} is a class, in {rows:,} of the rows read; if it means that the value is missing, add "
        f"WHERE {sql_name(chosen)} <> {sql_text(str(value))} to source.query"
        for value, rows in marks
    )
    if column.kind == "number" and (is_row_number(column, table.rows) or is_identifier(column)):
        doubts += (
            f"{column.name} is another whole number in each row, as numbers of rows are, which nothing predicts; if it is one, name "
            "another target with --target",
        )
    return table, _describe(column, doubts, data)


def rare_class_doubts(target: TargetChoice) -> Iterator[str]:
    """A line about classes with fewer rows than there are splits."""
    if not target.has_classes:
        return
    column = target.column
    rare = [(value, int(rows)) for value, rows in zip(*column.counts, strict=True) if rows < SPLIT_COUNT]
    literals = [_show_number(value) if column.kind == "number" else sql_text(str(value)) for value, _ in rare]
    names = name_list([f"{_show(value)} ({show_count(rows, 'row')})" for value, rows in rare])
    if not rare:
        return
    are = f"{names} of {column.name} {verb_for(len(rare), 'is a class', 'are classes')} of fewer rows than splits, so some split has none"
    if len(column.counts[0]) - len(rare) < 2:
        yield f"{are}; give more rows of {verb_for(len(rare), 'it', 'them')}"
        return
    named = [*literals[:MOST_SHOWN], *(["..."] if len(literals) > MOST_SHOWN else [])]
    unequal = f"<> {named[0]}" if len(named) == 1 else f"NOT IN ({', '.join(named)})"
    without = f"for a model without {verb_for(len(rare), 'it', 'them')}, add WHERE {sql_name(column.name)} {unequal} to source.query"
    yield f"{are}; {without}"


def target_names(table: SampledTable, name: str) -> list[str]:
    """The columns that `choose_target` would choose, as far as they are some."""
    names, raw_names = [column.name for column in table.columns], {raw: new for new, raw in table.raw_names.items()}
    if not name:
        return [_default_name(names)]
    parts = [name] if _match_name(names, raw_names, name) else name.split(",")
    return [match for part in parts if (match := _match_name(names, raw_names, part.strip()))]


def _default_name(names: Sequence[str]) -> str:
    by_lower_case = {name.lower(): name for name in names}
    return next((by_lower_case[usual] for usual in NAMES if usual in by_lower_case), names[-1])


def _match_name(names: Sequence[str], raw_names: Mapping[str, str], name: str) -> str:
    """The column of that name, in the files or the query; empty if there is none."""
    plain = column_names([name], 1)[0]
    by_lower_case = {other.lower(): other for other in reversed(names)}
    return raw_names.get(name) or next((other for other in names if other in (name, plain)), "") or by_lower_case.get(plain.lower(), "")


def _find_name(names: Sequence[str], raw_names: Mapping[str, str], name: str, data: str) -> str:
    """The column of that name. Raises ConfigError if there is none."""
    if chosen := _match_name(names, raw_names, name):
        return chosen
    remedy = suggestion(name, names, "name one of these")
    raise ConfigError(f"--target is {name}, which is no column of {data}: {name_list(names, name)}; {remedy}")


def _numbers(columns: Sequence[ColumnFacts], data: str) -> TargetChoice:
    """Several numbers, which one network predicts. Raises ConfigError unless all are numbers that vary."""
    for column in columns:
        if column.kind != "number" or column.distinct < 2:
            raise ConfigError(
                f"{data}: {column.name} is {'constant' if column.kind == 'number' else f'of type {column.typed.ddl}'}, and several targets "
                "must be numbers that vary; name one column with --target, or several of numbers"
            )
    if len(columns) == 1:
        return _describe(columns[0], (), data)
    reason = f"{len(columns)} numbers, which one network predicts together"
    names = ", ".join(column.name for column in columns)
    doubts = (f"the targets {names} are numbers; for classes, name one column with --target",)
    return TargetChoice(columns[0], "number", "vector", reason, "", False, doubts, tuple(columns[1:]))


def _merge_spellings(column: ColumnFacts) -> ColumnFacts | None:
    """The column without blanks around its classes, and in lower case where they differ in capitals; None if that makes none equal."""
    if column.distinct > MOST_CLASSES:
        return None
    values = [str(value) for value in column.counts[0]]
    trimmed = {value.strip(" ") for value in values}
    has_capitals = len({value.lower() for value in trimmed}) < len(trimmed) and all(len(value) > 1 for value in trimmed)
    if len(trimmed) == len(values) and not has_capitals:
        return None
    texts = pc.utf8_trim(column.typed.values, " ")
    texts = pc.utf8_lower(texts) if has_capitals else texts
    sql = "lower(trim({}))" if has_capitals else "trim({})"
    spellings: dict[str, list[str]] = {}
    for value in values:
        spellings.setdefault(value.strip(" ").lower() if has_capitals else value.strip(" "), []).append(value)
    example = next(group for group in spellings.values() if len(group) > 1)
    doubt = (
        f"{' and '.join(map(repr, example[:3]))} of {column.name} are one class, {len(spellings)} instead of {len(values)}; to keep them "
        f"apart, write {sql_name(column.name)} for {sql.format(sql_name(column.name))} in source.query"
    )
    inner = column.typed.sql or "{}"
    doubts = "; ".join(part for part in (column.typed.doubt, doubt) if part)
    return ColumnFacts(replace(column.typed, values=texts, sql=sql.replace("{}", inner), doubt=doubts))


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
        has_few = column.is_whole and column.distinct <= MOST_NUMBERED_CLASSES and column.rows > 5 * column.distinct
        if has_few and not _QUANTITY.search(column.name):
            doubt = f"the {column.distinct} whole numbers of {column.name} are classes; for a quantity, set its encoder to standardize"
            return _classes(column, (*doubts, doubt))
        reason = f"a number, from {column.numbers[0]:g} to {column.numbers[-1]:g}"
        return TargetChoice(column, "number", "standardize", reason, "", False, doubts)
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
    # Which of two is true, a name or a sign says; else it is the rarer.
    positive, is_named = values[1], False
    if column.kind == "number":
        if float(min(values)) < 0 < float(max(values)):
            positive, is_named = max(values), True
    elif len(named := [value for value in values if str(value).strip().lower() in _POSITIVE]) == 1:
        positive, is_named = named[0], True
    negative = next(value for value in values if value != positive)
    literal, other = (_show_number(value) if column.kind == "number" else sql_text(str(value)) for value in (positive, negative))
    percent = 100 * rows[list(values).index(positive)] / sum(rows)
    reason = f"two classes: {_show(positive)} is true, in {percent:.2g} % of the rows, and {_show(negative)} false"
    if not is_named:
        doubts += (
            f"{_show(positive)} of {column.name} is true, as the rarer of two, in {percent:.2g} % of the rows; for {_show(negative)}, "
            f"write = {other} for = {literal} in source.query",
        )
    return TargetChoice(column, "two classes", "binary", reason, f"{{}} = {escape_braces(literal)}", rare, doubts)


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

"""The Spark type of a column of texts: by the grammar of numbers of `pipelines.data.sources.text.type_checks`, and by the formats of
numbers and dates that the query makes some of; and that of values which have types of their own, as those of JSON have."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.messages.words import name_list, verb_for
from pipelines.data.features.auto.column_facts import TypedColumn
from pipelines.init.tables.date_formats import MomentReading, find_order_conflict, look_like_moments, read_moments
from pipelines.init.tables.dialect import MARKS
from pipelines.init.tables.number_formats import (
    DECIMAL_POINT,
    MAY_BE_A_NUMBER,
    MOST_WRONG,
    find_mixed_units,
    find_unit_words,
    read_numbers,
    share_of_looks,
)
from pipelines.init.tables.sql import sql_name

_WHOLE = r"^[+-]?[0-9]+$"
_FRACTION = r"^[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*$"
_LEADING_ZERO = r"^[+-]?0[0-9]"
"""As postal codes have it."""
_MAY_BE_THOUSANDS = r"^[1-9][0-9]{0,2}(?:\.[0-9]{3})+$|^[0-9]{1,3}$"
_BOOLEAN = r"^(?i:true|false)$"
_HALF = 0.5
"""Share of numbers among texts, from which on it is said that they are texts."""
_DURATION = r"^[0-9]{1,4}:[0-5]?[0-9](?::[0-5]?[0-9](?:[.][0-9]+)?)?$"


@dataclass(frozen=True)
class TextReading:
    """A column of texts with the type of its values."""

    column: TypedColumn
    decides: str = ""
    """What its texts show that those of other columns may leave open: the order of day and month, or what decimals begin with."""
    is_open: bool = False
    """Whether what other columns decide may change its type."""
    wrong: str = ""
    """Which of its values are none of this type; what becomes of them depends on the whole column."""


def type_columns(texts: Mapping[str, pa.Array], null_mark: str, is_complete: bool) -> list[TypedColumn]:
    """The columns with the types of nearly all of their values. What one leaves open, others decide."""
    readings = {name: type_column(name, column, null_mark, is_complete) for name, column in texts.items()}
    hints = {reading.decides for reading in readings.values()} - {""}
    return [
        type_column(name, texts[name], null_mark, is_complete, hints).column if reading.is_open and hints else reading.column
        for name, reading in readings.items()
    ]


def type_forms(columns: Sequence[TypedColumn]) -> list[TypedColumn]:
    """The columns, of which those of texts are numbers or moments if the texts have a form of these. Texts of nothing but digits stay
    texts, since who wrote a typed file meant so."""
    texts = {column.name: column.values for column in columns if column.ddl == "string"}
    typed = {column.name: column for column in type_columns(texts, "", True)}
    is_read = {name for name, column in typed.items() if column.sql or pa.types.is_temporal(column.values.type)}
    return [as_text(typed[column.name]) if column.name in is_read else column for column in columns]


def type_values(name: str, values: Sequence[Any], is_complete: bool) -> TypedColumn:
    """The column of values that are all booleans, all numbers, or all texts, with None for NULL. Its texts may be numbers or moments."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return TypedColumn(name, "boolean", pa.array(values, pa.bool_()))
    if kinds == {int} and all(value is None or abs(value) < 2**63 for value in values):
        numbers = pa.array(values, pa.int64())
        return TypedColumn(name, integer_type(numbers, is_complete), numbers)
    if kinds and kinds <= {int, float}:
        return TypedColumn(name, "double", pa.array([value if value is None else float(value) for value in values], pa.float64()))
    return as_text(type_column(name, pa.array(values, pa.large_string()), "", is_complete).column)


def without_infinity(column: TypedColumn) -> TypedColumn:
    """The column, whose infinite numbers the query makes NULL, if it has some."""
    infinite = pc.sum(pc.is_inf(column.values)).as_py() if pa.types.is_floating(column.values.type) else 0
    if not infinite:
        return column
    values = pc.if_else(pc.is_finite(column.values), column.values, pa.scalar(None, column.values.type))
    doubt = f"{infinite:,} of {len(values):,} values of {column.name} {verb_for(infinite)} infinite, and missing"
    return replace(column, values=values, sql="IF(abs({0}) < double('inf'), {0}, NULL)", doubt=doubt)


def integer_type(numbers: pa.Array, is_complete: bool) -> str:
    """The type of whole numbers in Spark. Those of a sample may be larger in the whole file."""
    bounds = pc.min_max(numbers).as_py()
    return "int" if is_complete and max(map(abs, bounds.values())) < 2**31 else "long"


def missing_marks(table: pa.Table) -> list[str]:
    """Texts that stand for missing values in columns that are numbers without them, the most frequent first; `?` in any column. NA among
    codes of two letters, such as EU and AS, is one of these, and no missing value of any column."""
    counts, codes = Counter[str](), set[str]()
    marks = pa.array(MARKS, pa.large_string())
    for column in table.columns:
        is_mark = pc.is_in(column, marks)
        if not pc.any(is_mark).as_py():
            continue
        unmarked = column.filter(pc.and_(pc.invert(is_mark), pc.is_valid(column)))
        is_number = len(unmarked) > 0 and (share_of_looks(unmarked, _FRACTION) == 1 or read_numbers(unmarked.combine_chunks()) is not None)
        is_code = share_of_looks(unmarked, "^[A-Z][A-Z]$") == 1
        codes |= {mark for mark in pc.unique(column).to_pylist() if mark == "NA"} if is_code else set()
        for mark in pc.value_counts(column.filter(is_mark)).to_pylist():
            counts[mark["values"]] += mark["counts"] if is_number or mark["values"] in ("?", "\\N") else 0
    return [mark for mark, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count and mark not in codes]


def type_column(name: str, texts: pa.Array, null_mark: str, is_complete: bool, hints: Collection[str] = ()) -> TextReading:
    """The column with the type of nearly all of its values; text if they have none."""
    if null_mark:
        texts = pc.if_else(pc.equal(texts, null_mark), pa.scalar(None, pa.large_string()), texts)
    marked = pc.if_else(pc.is_in(texts, pa.array(MARKS, pa.large_string())), pa.scalar(None, pa.large_string()), texts)
    filled = marked.drop_null()
    if not len(filled):
        return TextReading(TypedColumn(name, "string", texts))
    reading = _number(name, marked, filled, is_complete, hints)
    if not reading and (moments := read_moments(marked, hints)):
        reading = _moment(name, marked, moments)
    has_marks = marked.null_count > texts.null_count
    if reading:
        column = reading.column
        if reading.wrong:
            fate = "the query makes NULL of them" if has_marks else "records with them are refused"
            column = replace(column, doubt=f"{reading.wrong}; {fate}")
        return replace(reading, column=_null_marks(column, texts, marked) if has_marks else column)
    if not has_marks and share_of_looks(filled, _BOOLEAN) == 1:
        return TextReading(TypedColumn(name, "boolean", pc.equal(pc.utf8_lower(texts), "true")))
    return TextReading(TypedColumn(name, "string", texts, doubt=_doubt_of_text(name, filled)))


def _null_marks(column: TypedColumn, texts: pa.Array, marked: pa.Array) -> TypedColumn:
    """The column of numbers or moments, whose marks of missing values, NULL in `marked`, the query makes NULL."""
    column = as_text(column)
    marks = pc.unique(texts.filter(pc.and_(pc.is_null(marked), pc.is_valid(texts)))).to_pylist()
    if column.sql.startswith("try_cast") and re.search("nan|inf", " ".join(marks), re.IGNORECASE):  # which Spark casts to numbers
        column = replace(column, sql=f"CASE WHEN {{0}} RLIKE '[0-9]' THEN {column.sql.replace('{}', '{0}')} END")
    rows = marked.null_count - texts.null_count
    doubt = (
        f"{rows:,} of {len(texts) - texts.null_count:,} values of {column.name} {verb_for(rows)} {name_list(sorted(marks))}, and missing"
    )
    return replace(column, doubt="; ".join(filter(None, (column.doubt, doubt))))


def _doubt_of_text(name: str, filled: pa.Array) -> str:
    """A doubt about texts that are nearly numbers, numbers with several units, durations, or dates in two orders."""
    if conflict := find_order_conflict(filled):
        day_first, month_first = conflict
        return f"{name} is text, since its dates have the day first, as {day_first}, and the month first, as {month_first}"
    if len(words := find_unit_words(filled)) > 1:
        return f"{name} is text, since different words stand behind its numbers: {', '.join(sorted(words))}"
    if share_of_looks(filled, MAY_BE_A_NUMBER) >= _HALF and (units := find_mixed_units(filled)):
        if units == ["%"]:
            column = sql_name(name)
            share = f"try_cast(replace({column}, '%', '') AS double) / IF(contains({column}, '%'), 100, 1)"
            return f"{name} is text, since some of its numbers have % and others none; for shares of 1, write {share} in source.query"
        return f"{name} is text, since different units stand beside its numbers: {', '.join(units)}"
    if share_of_looks(filled, _DURATION) >= 1 - MOST_WRONG:
        unit_seconds = (3600, 60, 1)[: filled[0].as_py().count(":") + 1]
        parts = (f"{unit} * try_cast(split_part({sql_name(name)}, ':', {place}) AS double)" for place, unit in enumerate(unit_seconds, 1))
        return (
            f"{name} is text, since {filled[0]} is a time of day or a duration, and no number; for its seconds, write "
            f"{' + '.join(parts)} in source.query"
        )
    if look_like_moments(filled):
        return (
            f"{name} is text, since times written as {filled[0].as_py()!r} are not read; for times, write "
            f"try_to_timestamp({sql_name(name)}, PATTERN) in source.query, with Spark's pattern of them"
        )
    if not _HALF <= share_of_looks(filled, _FRACTION) < 1:
        return ""
    wrong = filled.filter(pc.invert(pc.match_substring_regex(filled, _FRACTION)))
    are = f"{len(wrong):,} of {len(filled):,} values {verb_for(len(wrong))}"
    return (
        f"{name} is text, since {are} no number, such as {wrong[0].as_py()[:40]!r}; for numbers, write "
        f"try_cast({sql_name(name)} AS double) in source.query, which makes all others NULL"
    )


def as_text(column: TypedColumn) -> TypedColumn:
    """The column as one of texts, of which the query makes its values: what is none of them is NULL."""
    return column if column.ddl == "string" else replace(column, ddl="string", sql=f"try_cast({{}} AS {column.ddl})")


def _number(name: str, texts: pa.Array, filled: pa.Array, is_complete: bool, hints: Collection[str]) -> TextReading | None:
    """The column of whole numbers, of those with fractions, or of those of a form, and what is assumed of it; None if it has no numbers."""
    if share_of_looks(filled, _WHOLE) == 1:
        if share_of_looks(filled, _LEADING_ZERO):
            return None  # postal codes, which are no quantities
        try:
            numbers = pc.utf8_ltrim(texts, "+").cast(pa.int64())
        except pa.ArrowInvalid:
            return None  # too many digits for a number of Spark, as in hashes
        return TextReading(TypedColumn(name, integer_type(numbers, is_complete), numbers))
    share = share_of_looks(filled, _FRACTION)
    if share >= 1 - MOST_WRONG and share_of_looks(filled.slice(0, 1_000), _MAY_BE_THOUSANDS) < 1:
        is_number = pc.match_substring_regex(texts, _FRACTION)
        numbers = pc.utf8_trim(pc.if_else(is_number, texts, pa.scalar(None, pa.large_string())), " \t").cast(pa.float64())
        wrong_texts = texts.filter(pc.and_(pc.is_valid(texts), pc.is_null(numbers)))
        wrong = ""
        if len(wrong_texts):
            are = f"{len(wrong_texts):,} of {len(filled):,} values {verb_for(len(wrong_texts))}"
            wrong = f"{name} is a number, though {are} none, such as {wrong_texts[0].as_py()[:40]!r}"
        return TextReading(TypedColumn(name, "double", numbers), DECIMAL_POINT, wrong=wrong)
    if not (reading := read_numbers(filled, hints)):
        return None
    form = reading.form
    if form.is_plain and not reading.wrong:
        column = TypedColumn(name, "double", texts.cast(pa.float64()))
    else:
        column = TypedColumn(name, "string", form.numbers(texts), form.sql)
    reason = f", {reading.reason}" if reading.reason else ""
    difference = form.difference
    doubts = [f"{name} is a number{difference or ' with a decimal point'}{reason}"] if difference or reading.wrong or reason else []
    doubts += [_wrong(name, texts, column.values)] if reading.wrong else []
    doubts += [f"otherwise write {reading.other.cast.format(sql_name(name))} in source.query"] if reading.other and reading.reason else []
    return TextReading(replace(column, doubt="; ".join(filter(None, doubts))), reading.decides, reading.other is not None)


def _moment(name: str, texts: pa.Array, reading: MomentReading) -> TextReading:
    """The column of dates or times, and what is assumed of them."""
    form, filled = reading.form, texts.drop_null()
    kind = "date" if form.is_date else "timestamp"
    column = TypedColumn(name, "string" if form.sql else kind, reading.moments, form.sql)
    if not form.sql and reading.wrong:
        column = as_text(column)
    doubts = [f"{name} is a {'date' if form.is_date else 'time'} written {form.pattern or 'as a quarter'}"] if form.sql else []
    if reading.other:
        first, second = filled[:100], reading.other.moments(filled[:100])
        place = next((place for place, other in enumerate(second) if other != form.moments(first)[place]), 0)
        first_moment, other_moment = (f"{moments[place].as_py():%-d %B %Y}" for moments in (form.moments(first), second))
        open_order = f" or {reading.other.pattern}" if not reading.reason else f", {reading.reason}"
        doubts[0] += f"{open_order}: {filled[place].as_py()} is taken for {first_moment}"
        doubts += [f"if it is {other_moment}, write {reading.other.sql.format(sql_name(name))} in source.query"]
    if form.has_zones(filled):
        doubts += [f"{name} is in UTC, to which its offsets are turned"]
    if form.has_short_years:
        doubts += ["its years are from 2000 to 2099"]
    doubts += [_wrong(name, texts, reading.moments)] if reading.wrong else []
    return TextReading(replace(column, doubt="; ".join(filter(None, doubts))), reading.decides, reading.other is not None)


def _wrong(name: str, texts: pa.Array, values: pa.Array) -> str:
    """The number of texts that have no value, with one of them, and what becomes of them."""
    wrong = texts.filter(pc.and_(pc.is_valid(texts), pc.is_null(values)))
    if not len(wrong):
        return ""
    are = verb_for(len(wrong), "is none and becomes", "are none and become")
    return f"{len(wrong):,} of the {len(texts) - texts.null_count:,} values of {name}, such as {wrong[0].as_py()[:40]!r}, {are} NULL"

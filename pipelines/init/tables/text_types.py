"""The Spark type of a column of texts, by the grammar of numbers of `pipelines.data.sources.text.numbers`."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.auto.column_facts import TypedColumn
from pipelines.init.tables.dialect import MARKS

_WHOLE = r"^[+-]?[0-9]+$"
_FRACTION = r"^[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*$"
_DECIMAL_COMMA = r"^[+-]?[0-9]+(?:,[0-9]+)?$"
_LEADING_ZERO = r"^[+-]?0[0-9]"
_BOOLEAN = r"^(?i:true|false)$"
_DATE = r"^[0-9]{4}-[01]?[0-9]-[0-3]?[0-9]$"
_TIME = r"^[0-9]{4}-[01][0-9]-[0-3][0-9][ T][0-2][0-9]:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?$"
_DATE_FORMATS = {
    "yyyy/MM/dd": (r"^[0-9]{4}/[01][0-9]/[0-3][0-9]$", "%Y/%m/%d"),
    "dd.MM.yyyy": (r"^[0-3][0-9]\.[01][0-9]\.[0-9]{4}$", "%d.%m.%Y"),
    "MM/dd/yyyy": (r"^[01][0-9]/[0-3][0-9]/[0-9]{4}$", "%m/%d/%Y"),
    "dd/MM/yyyy": (r"^[0-3][0-9]/[01][0-9]/[0-9]{4}$", "%d/%m/%Y"),
}
"""Dates that no type of Spark reads by itself: by the pattern for Spark, what they look like, and the pattern for Arrow."""
_MOST_WRONG = 0.005
"""Share of texts that a column of numbers may have: their records are refused, of which a version may have 1 %."""


def missing_marks(table: pa.Table) -> list[str]:
    """Texts that stand for missing values in columns that are numbers without them, the most frequent first; `?` in any column."""
    counts = Counter[str]()
    marks = pa.array(MARKS, pa.large_string())
    for column in table.columns:
        is_mark = pc.is_in(column, marks)
        if not pc.any(is_mark).as_py():
            continue
        unmarked = column.filter(pc.and_(pc.invert(is_mark), pc.is_valid(column)))
        is_number = len(unmarked) > 0 and _share(unmarked, _FRACTION) == 1
        for mark in pc.value_counts(column.filter(is_mark)).to_pylist():
            counts[mark["values"]] += mark["counts"] if is_number or mark["values"] in ("?", "\\N") else 0
    return [mark for mark, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count]


def type_column(name: str, texts: pa.Array, null_mark: str, is_complete: bool) -> TypedColumn:
    """The column with the type of all of its values; text if they have none. Numbers of a sample may be larger in the whole file."""
    if null_mark:
        texts = pc.if_else(pc.equal(texts, null_mark), pa.scalar(None, pa.large_string()), texts)
    marked = pc.if_else(pc.is_in(texts, pa.array(MARKS, pa.large_string())), pa.scalar(None, pa.large_string()), texts)
    filled = marked.drop_null()
    as_text = TypedColumn(name, "string", texts)
    if not len(filled):
        return as_text
    has_marks = marked.null_count > texts.null_count
    if typed := _number(name, marked, filled, is_complete):
        return TypedColumn(name, "string", typed.values, f"try_cast({{}} AS {typed.ddl})") if has_marks else typed
    if has_marks:
        return as_text
    if _share(filled, _BOOLEAN) == 1:
        return TypedColumn(name, "boolean", pc.equal(pc.utf8_lower(texts), "true"))
    return _moment(name, texts, filled) or as_text


def _number(name: str, texts: pa.Array, filled: pa.Array, is_complete: bool) -> TypedColumn | None:
    if _share(filled, _WHOLE) == 1:
        if _share(filled, _LEADING_ZERO):
            return None  # postal codes, which are no quantities
        try:
            numbers = texts.cast(pa.int64())
        except pa.ArrowInvalid:
            return None  # too many digits for a number of Spark, as in hashes
        small = is_complete and max(abs(pc.max(numbers).as_py()), abs(pc.min(numbers).as_py())) < 2**31
        return TypedColumn(name, "int" if small else "long", numbers)
    share = _share(filled, _FRACTION)
    if share >= 1 - _MOST_WRONG:
        is_number = pc.match_substring_regex(texts, _FRACTION)
        numbers = pc.utf8_trim(pc.if_else(is_number, texts, pa.scalar(None, pa.large_string())), " \t").cast(pa.float64())
        wrong = len(filled) - round(share * len(filled))
        doubt = f"{name} is a number, though {wrong:,} of {len(filled):,} values are none; records with them are refused" if wrong else ""
        return TypedColumn(name, "double", numbers, doubt=doubt)
    if _share(filled, _DECIMAL_COMMA) == 1:
        numbers = pc.replace_substring(texts, ",", ".").cast(pa.float64())
        return TypedColumn(name, "string", numbers, "try_cast(replace({}, ',', '.') AS double)")
    return None


def _moment(name: str, texts: pa.Array, filled: pa.Array) -> TypedColumn | None:
    """The column as dates or times, if all of its texts are some."""
    if _share(filled, _TIME) == 1 or _share(filled, _DATE) == 1:
        is_date = _share(filled, _DATE) == 1
        try:
            moments = pc.replace_substring(texts, "T", " ").cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            return None
        return TypedColumn(name, "date" if is_date else "timestamp", moments)
    for spark, (look, arrow) in _DATE_FORMATS.items():
        if _share(filled, look) == 1:
            moments = pc.strptime(texts, arrow, "us", error_is_null=True)
            if moments.null_count == texts.null_count:
                return TypedColumn(name, "string", moments, f"to_date({{}}, '{spark}')")
    return None


def _share(filled: pa.Array, pattern: str) -> float:
    """The share of the texts that match."""
    first = pc.match_substring_regex(filled.slice(0, 1_000), pattern)
    if not pc.any(first).as_py():
        return 0.0
    return float(np.mean(pc.match_substring_regex(filled, pattern).to_numpy(zero_copy_only=False)))

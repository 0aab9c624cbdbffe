"""Roles of columns, from facts of a sample: identifiers, copies of the target, sentences. `lockstep init` and `auto` share these."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.auto.column_facts import ColumnFacts

_IDENTIFIER = re.compile(r"(^|_)(id|key|uuid|guid)\d*$|[a-z](Id|ID|Key|UUID)$|^(row|index|unnamed_0)$", re.IGNORECASE)
_MEMBER = re.compile(
    r"^(patient|subject|customer|client|person|user|member|household|speaker|machine|engine|device|session)(_?(id|no|nr|number))?$", re.I
)
_LEAST_GROUPS = 20
_COPY_CORRELATION = 0.9999
_COPY_PURITY = 0.999
_LEAST_ROWS_OF_A_VALUE = 5
IDENTIFIER_SHARE = 0.8
"""Share of the rows beyond which different texts are names of rows, and no categories."""
_TEXT_WORDS = 4
IDENTIFIER = "a different value in every row, an identifier"
ROW_NUMBER = "a number of the row, which says nothing"
_LARGEST_EXACT = 2.0**53
_YEARS = (1500, 2100)
COPY = "a near copy of the target"


def has_identifier_name(column: ColumnFacts) -> bool:
    return bool(_IDENTIFIER.search(column.name))


def has_sentences(column: ColumnFacts) -> bool:
    """Whether the column has sentences, and no categories."""
    return column.kind == "text" and column.words >= _TEXT_WORDS and column.distinct > 0.2 * len(column.filled)


def is_row_number(column: ColumnFacts, rows: int) -> bool:
    """Whether the column counts the `rows` of a table, of which it has a sample: different whole numbers that are most of an arithmetic
    sequence, in any order. Of measured numbers so near to each other, some would be equal. Years are no row numbers."""
    if not (column.is_unique and column.is_whole) or max(abs(column.numbers[[0, -1]])) >= _LARGEST_EXACT:
        return False
    numbers = column.numbers.astype(np.int64)
    step = np.gcd.reduce(np.diff(numbers))
    are_years = step == 1 and _YEARS[0] <= numbers[0] and numbers[-1] <= _YEARS[1]
    return bool((numbers[-1] - numbers[0]) // step < 2 * rows) and not are_years


def is_identifier(column: ColumnFacts) -> bool:
    """Whether the column names rows."""
    if column.kind == "number":
        return has_identifier_name(column) and column.is_unique and column.is_whole
    return column.kind == "text" and not has_sentences(column) and column.distinct > IDENTIFIER_SHARE * len(column.filled)


def is_member(column: ColumnFacts) -> bool:
    """Whether the column has identifiers that repeat, as those of people do."""
    has_name = has_identifier_name(column) or _MEMBER.search(column.name)
    return bool(has_name) and (column.kind == "text" or column.is_whole) and _LEAST_GROUPS <= column.distinct < column.rows


def is_array(column: ColumnFacts) -> bool:
    """Whether the column has lists of numbers of one length."""
    kind = column.filled.type.value_type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return (
        is_number
        and len(pc.unique(pc.list_value_length(column.filled))) == 1
        and not pc.any(pc.is_null(pc.list_flatten(column.filled))).as_py()
    )


def unusable_reason(column: ColumnFacts) -> str:
    """Why no encoder takes the column; empty if one does."""
    if column.kind == "other":
        return f"of type {column.typed.ddl}, which no encoder takes"
    if column.kind == "list" and len(column.filled) and not pa.types.is_string(column.filled.type.value_type) and not is_array(column):
        return f"lists of different lengths, of type {column.typed.ddl}"
    return ""


def many_texts(distinct: int, rows: int) -> str:
    """Why a column of this many different texts is left out; `rows` are those that have one."""
    return f"{distinct:,} different texts in {rows:,} rows, an identifier"


def is_copy(column: ColumnFacts, target: ColumnFacts, is_number: bool) -> bool:
    """Whether the column decides the target alone: as a number by a line if the target `is_number`, as categories one by one."""
    if is_number:
        if column.kind != "number" or column.distinct < 3:
            return False
        return abs(_correlation(column.places, target.places)) > _COPY_CORRELATION
    if column.kind not in ("number", "text", "boolean") or not target.distinct <= column.distinct <= 2 * target.distinct:
        return False
    if len(column.filled) < _LEAST_ROWS_OF_A_VALUE * column.distinct:  # of a value of one row, any column is a copy
        return False
    return _purity(column, target) > _COPY_PURITY


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson's, over the rows where both are finite; 0 if it is undefined. By sums and not by BLAS, whose result depends on threads."""
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 3:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        x, y = first[both] - first[both].mean(), second[both] - second[both].mean()
        correlation = float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))
    return correlation if np.isfinite(correlation) else 0.0


def _purity(column: ColumnFacts, target: ColumnFacts) -> float:
    """The share of rows whose class is the most frequent one of their value in the column."""
    names = ["value", "target"]
    table = pa.table([column.typed.values, target.typed.values], names=names).drop_null()
    pairs = table.group_by(names).aggregate([([], "count_all")])
    best = pairs.group_by("value").aggregate([("count_all", "max")])
    return (pc.sum(best["count_all_max"]).as_py() or 0) / max(len(table), 1)

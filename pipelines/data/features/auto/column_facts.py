"""Facts of a column in a sample, and its role by them: an identifier, a copy of the target, sentences. `lockstep init` and `auto` share
these."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.raw import is_number, is_text

Kind = Literal["number", "text", "boolean", "moment", "list", "other"]
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


@dataclass(frozen=True)
class TypedColumn:
    """A column of a raw table, with the values that the query will see."""

    name: str
    ddl: str
    """Its type in the schema of the table."""
    values: pa.Array
    """Of the type float64, int64, bool, timestamp, date32 or large_string, or a list."""
    sql: str = ""
    """What the query makes of the column, with {} for its name; empty if it is used as it is."""
    doubt: str = ""


@dataclass(frozen=True)
class ColumnFacts:
    """A typed column and its facts. All are over the values that are not NULL."""

    typed: TypedColumn

    @property
    def name(self) -> str:
        return self.typed.name

    @cached_property
    def kind(self) -> Kind:
        arrow = self.typed.values.type
        if pa.types.is_boolean(arrow):
            return "boolean"
        if is_number(arrow):
            return "number"
        if pa.types.is_timestamp(arrow) or pa.types.is_date(arrow):
            return "moment"
        if is_text(arrow):
            return "text"
        return "list" if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) else "other"

    @property
    def rows(self) -> int:
        return len(self.typed.values)

    @cached_property
    def filled(self) -> pa.Array:
        values = self.typed.values
        if pa.types.is_floating(values.type):
            values = pc.add(pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type)), 0.0)  # -0 is 0
        return values.drop_null()

    @property
    def nulls(self) -> int:
        return self.rows - len(self.filled)

    @cached_property
    def has_nan(self) -> bool:
        """Whether a value is NaN, which SQL takes for a number."""
        values = self.typed.values
        return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())

    @cached_property
    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Values and their numbers of rows, the most frequent first, and of equally frequent ones the least."""
        if self.kind == "number":  # in a twentieth of the time of Arrow's tables
            values, counts = np.unique(self.filled.to_numpy(zero_copy_only=False), return_counts=True)
            order = np.argsort(-counts, kind="stable")
            return values[order], counts[order]
        counted = pc.value_counts(self.filled)
        table = pa.table({"value": counted.field("values"), "count": counted.field("counts")})
        table = table.sort_by([("count", "descending"), ("value", "ascending")])
        return table["value"].to_numpy(), table["count"].to_numpy()

    @cached_property
    def distinct(self) -> int:
        return 0 if self.kind in ("list", "other") else int(pc.count_distinct(self.filled).as_py())

    @property
    def is_unique(self) -> bool:
        return self.rows > 1 and self.distinct == self.rows

    @cached_property
    def is_whole(self) -> bool:
        return self.kind == "number" and bool(np.all(self.numbers == np.floor(self.numbers)))

    @cached_property
    def numbers(self) -> np.ndarray:
        """Sorted float64 values."""
        return np.sort(self.filled.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))

    @cached_property
    def places(self) -> np.ndarray:
        """One float64 for each row, NaN for NULL; of a time, its microseconds."""
        values = self.typed.values
        values = values.cast(pa.timestamp("us")).cast(pa.int64()) if self.kind == "moment" else values
        return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)

    @cached_property
    def codes(self) -> np.ndarray:
        """One int64 for each row, equal for equal values, and -1 for NULL; of every kind but lists."""
        indices = self.typed.values.dictionary_encode().indices
        return np.asarray(indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False))

    @cached_property
    def top_share(self) -> float:
        """The share of the most frequent value."""
        return float(self.counts[1][0] / len(self.filled)) if len(self.filled) else 1.0

    @cached_property
    def tail(self) -> float:
        """How far the outer hundredths lie from the median, in distances of the quartiles; 1.9 for a normal distribution."""
        low, first, median, third, high = np.quantile(self.numbers, [0.005, 0.25, 0.5, 0.75, 0.995], method="lower")
        spread = third - first or self.numbers.std() or 1.0
        return float(max(high - median, median - low) / spread)

    @cached_property
    def words(self) -> float:
        """The mean number of words."""
        texts = self.filled.slice(0, 20_000)
        return float(np.mean(pc.count_substring_regex(texts, r"\S+").to_numpy(zero_copy_only=False))) if len(texts) else 0.0

    @cached_property
    def most_words(self) -> int:
        """The number of words that 19 of 20 texts do not exceed."""
        counts = pc.count_substring_regex(self.filled.slice(0, 20_000), r"\w+|[^\w\s]").to_numpy(zero_copy_only=False)
        return int(np.quantile(counts, 0.95, method="lower")) if len(counts) else 0

    @cached_property
    def is_increasing(self) -> bool:
        """Whether no row has a smaller value than the row before it."""
        return self.kind in ("number", "moment") and self.nulls == 0 and bool(np.all(np.diff(self.places) >= 0))


def convert_column(name: str, values: pa.ChunkedArray) -> TypedColumn:
    """The column in the types that facts are computed of."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.cast(kind.value_type), kind.value_type
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return TypedColumn(name, "double", values.cast(pa.float64()).combine_chunks())
    if pa.types.is_unsigned_integer(kind) or pa.types.is_signed_integer(kind):
        return TypedColumn(name, "long", values.cast(pa.int64(), safe=False).combine_chunks())
    if pa.types.is_boolean(kind):
        return TypedColumn(name, "boolean", values.combine_chunks())
    if pa.types.is_timestamp(kind):
        moments = values.cast(pa.timestamp("us", kind.tz), safe=False).combine_chunks()  # Spark has no nanoseconds either
        return TypedColumn(name, "timestamp", pc.local_timestamp(moments) if kind.tz else moments)
    if pa.types.is_date(kind):
        return TypedColumn(name, "date", values.combine_chunks())
    if is_text(kind):
        return TypedColumn(name, "string", values.cast(pa.large_string()).combine_chunks())
    is_list = pa.types.is_list(kind) and (
        pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type) or pa.types.is_string(kind.value_type)
    )
    return TypedColumn(name, str(kind), values.combine_chunks() if is_list else pa.nulls(len(values)))


def has_identifier_name(column: ColumnFacts) -> bool:
    return bool(_IDENTIFIER.search(column.name))


def has_sentences(column: ColumnFacts) -> bool:
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
    return (
        (pa.types.is_integer(kind) or pa.types.is_floating(kind))
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


def is_copy(column: ColumnFacts, target: ColumnFacts, is_by_line: bool) -> bool:
    """Whether the column decides the target alone: as a number `is_by_line`, as categories one by one."""
    if is_by_line:
        if column.kind != "number" or column.distinct < 3:
            return False
        return abs(_correlation(column.places, target.places)) > _COPY_CORRELATION
    if column.kind not in ("number", "text", "boolean") or not target.distinct <= column.distinct <= 2 * target.distinct:
        return False
    if len(column.filled) < _LEAST_ROWS_OF_A_VALUE * column.distinct:  # of a value of one row, any column is a copy
        return False
    names = ["value", "target"]
    table = pa.table([column.typed.values, target.typed.values], names=names).drop_null()
    pairs = table.group_by(names).aggregate([([], "count_all")])
    best = pairs.group_by("value").aggregate([("count_all", "max")])
    rows_of_best_class = pc.sum(best["count_all_max"]).as_py() or 0
    return rows_of_best_class / max(len(table), 1) > _COPY_PURITY


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson's, over the rows where both are finite; 0 if it is undefined. By sums and not by BLAS, whose result depends on threads."""
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum() < 3:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        x, y = first[both] - first[both].mean(), second[both] - second[both].mean()
        correlation = float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))
    return correlation if np.isfinite(correlation) else 0.0

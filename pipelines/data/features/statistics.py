"""Statistics of a raw column, which encoders are fitted on. They do not depend on the order or partitioning of the rows.

1. An `Accumulator` reads the values of one column in one partition, a batch at a time, in one pass. Of numbers it keeps a `Sample`, the
   rows with the smallest hashes.
2. Its `summary()` is small and can be written as JSON. Counts of values may be large and are drained separately, as tables.
3. `combine_summaries` merges several summaries into one, since the samples of many partitions may not fit on one machine.
4. `statistics_from_summary` makes `Statistics` from the last summary and the counts summed by value."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features import exact_sums
from pipelines.data.features.base import BYTE_WORDS, CHARACTERS, COUNTS, LINE_WORDS, LOWERCASE_WORDS, MOMENTS, SAMPLE, WORDS
from pipelines.data.features.byte_words import byte_word_counts
from pipelines.data.features.raw import categories, check_category, is_text, numbers, words
from pipelines.data.features.text_pieces import character_counts, line_word_counts, term_rule, text_counts

_PIECES: dict[str, Callable[[pa.Array], pa.Table]] = {
    CHARACTERS: character_counts,
    BYTE_WORDS: byte_word_counts,
    LINE_WORDS: line_word_counts,
    LOWERCASE_WORDS: partial(line_word_counts, lowercase=True),
}
COUNTS_SCHEMA = pa.schema([pa.field("value", pa.string(), nullable=False), pa.field("count", pa.int64(), nullable=False)])
# Spark passes 10,000 rows at a time; counting ten times as many at once halves the time.
_ROWS_COUNTED_AT_ONCE = 100_000
_PENDING_COUNTS = 1_000_000
# Quantiles are computed from this many rows; the standard error of the rank of a quantile is then at most 0.0016.
SAMPLE_ROWS = 100_000


@dataclass(frozen=True)
class Statistics:
    """Statistics of one raw column of the training split. Fields that do not apply to its type are None."""

    rows: int
    nulls: int
    """Number of NULL and NaN values."""
    infinite: int = 0
    """Number of ±∞, which are excluded from the statistics below."""
    mean: float | None = None
    deviation: float | None = None
    """√(Σ(x − mean)² / n)."""
    minimum: float | None = None
    maximum: float | None = None
    counts: pa.Table | None = None
    """(value, count) of each value as text, or of its pieces; the most frequent first, ties by value."""
    distinct: int = 0
    """Number of different values or pieces, also of those that `counts` lacks because it has only the most frequent ones."""
    pieces: int = 0
    """Number of all pieces of text that were counted, also of those that `counts` lacks because it has only the most frequent ones."""
    terms: Mapping[str, pa.Table] = field(default_factory=dict)
    """By the statistic's name: (value, count) of each term, and how many texts have it; the most frequent first, ties by value."""
    sample: np.ndarray | None = None
    """Sorted float64: the numbers of the SAMPLE_ROWS rows of smallest order, or of all rows if there are fewer."""

    @property
    def values(self) -> int:
        return self.rows - self.nulls - self.infinite


class Accumulator:
    """Accumulates the statistics of one column in one partition. `needs` selects them: "moments" (mean, deviation, minimum, maximum),
    "sample", one of COUNTED, and that of any `TermRule`."""

    def __init__(self, needs: Iterable[str]) -> None:
        self._needs = frozenset(needs)
        self._rows = self._nulls = self._infinite = self._sum = self._squares = self._pieces = 0
        self._minimum, self._maximum = np.inf, -np.inf
        self._uncounted: list[pa.Array] = []
        self._counts: list[pa.Table] = []
        self._rules = {need: rule for need in sorted(self._needs) if (rule := term_rule(need))}
        self._term_counts: dict[str, list[pa.Table]] = {need: [] for need in self._rules}
        self._sample = Sample()

    def add(self, values: pa.Array, order: np.ndarray) -> None:
        """Add a batch of rows. `order`, uint64 of shape (rows,), is a hash of the content of each row. Raises ConfigError if the type of
        the values does not have the needed statistics."""
        self._rows += len(values)
        if self._needs & {MOMENTS, SAMPLE}:
            self._add_numbers(numbers(values), order)
        elif pa.types.is_floating(values.type):
            self._nulls += int(np.isnan(numbers(values)).sum())
        else:
            self._nulls += values.null_count
        for need, rule in self._rules.items():
            for terms, texts in text_counts(values, rule):
                counts = pa.table([terms, pa.array(texts, pa.int64())], schema=COUNTS_SCHEMA)
                self._term_counts[need] = _append_counts(self._term_counts[need], counts)
        if WORDS in self._needs:
            values = (words(values) if is_text(values.type) else values).flatten()
        if self._needs & {COUNTS, WORDS}:
            check_category(values.type)
            self._uncounted.append(values)
            if sum(map(len, self._uncounted)) >= _ROWS_COUNTED_AT_ONCE:
                self._count()
        for piece in _PIECES.keys() & self._needs:
            counts = _PIECES[piece](values)
            self._pieces += pc.sum(counts["count"]).as_py() or 0
            self._add_counts(counts)

    @property
    def terms_held(self) -> int:
        """Number of counts of terms that the next calls of `drain` return, at most."""
        return sum(len(table) for tables in self._term_counts.values() for table in tables)

    def drain(self, terms: str = "") -> pa.Table:
        """Counts since the last call, as a table (value, count) with each value once: of COUNTED, or of the statistic `terms`. The
        tables of all calls and partitions are summed by value before `statistics_from_summary`."""
        if terms:
            drained, self._term_counts[terms] = _sum_counts(self._term_counts[terms]), []
            return drained
        self._count()
        drained, self._counts = _sum_counts(self._counts), []
        return drained

    def summary(self) -> dict[str, Any]:
        """All statistics except the counts, as JSON values."""
        return {
            "rows": self._rows,
            "nulls": self._nulls,
            "infinite": self._infinite,
            "pieces": self._pieces,
            "needs": sorted(self._needs),
            "sum": hex(self._sum),
            "squares": hex(self._squares),
            "minimum": float(self._minimum),
            "maximum": float(self._maximum),
            **self._sample.summary(),
        }

    def _add_numbers(self, values: np.ndarray, order: np.ndarray) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            missing = int(np.isnan(values).sum())
            self._nulls += missing
            self._infinite += int(len(values) - finite.sum()) - missing
            values, order = values[finite], order[finite]
        if not len(values):
            return
        if MOMENTS in self._needs:
            total, squares = exact_sums.sums(values)
            self._sum, self._squares = self._sum + total, self._squares + squares
            self._minimum, self._maximum = min(self._minimum, values.min()), max(self._maximum, values.max())
        if SAMPLE in self._needs:
            self._sample.add(values, order)

    def _count(self) -> None:
        if not self._uncounted:
            return
        counted = pc.value_counts(pa.chunked_array(self._uncounted))
        self._uncounted = []
        text, count = categories(counted.field("values")), counted.field("counts")
        table = pa.table([text, count], schema=pa.schema([pa.field("value", pa.string()), pa.field("count", pa.int64())]))
        self._add_counts(table.filter(pc.is_valid(text)))

    def _add_counts(self, counts: pa.Table) -> None:
        self._counts = _append_counts(self._counts, counts.cast(COUNTS_SCHEMA))


def combine_summaries(summaries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Combine the summaries of partitions into the summary that one partition with all rows would give."""
    parts = list(summaries)
    order = np.concatenate([np.frombuffer(b64decode(part["order"]), "<u8") for part in parts])
    values = np.concatenate([_sample_values(part) for part in parts])
    return {
        **{key: sum(part[key] for part in parts) for key in ("rows", "nulls", "infinite", "pieces")},
        "needs": sorted({need for part in parts for need in part["needs"]}),
        **{key: hex(sum(int(part[key], 16) for part in parts)) for key in ("sum", "squares")},
        "minimum": min(part["minimum"] for part in parts),
        "maximum": max(part["maximum"] for part in parts),
        **_sample_summary(*_smallest(order, values)),
    }


def statistics_from_summary(
    summary: dict[str, Any],
    counts: pa.Table | None = None,
    terms: Mapping[str, pa.Table] | None = None,
    most: int | None = None,
    distinct: int | None = None,
) -> Statistics:
    """The statistics of one column from the summary of all its rows, the table of its counts, and those of its `terms` by statistic.

    Of each table, the `most` frequent are kept. If that has been done already, `distinct` tells how many counts there were. Sums are exact;
    only the final division rounds."""
    summed = None if counts is None else _most_frequent_first(counts)
    numeric = summary["rows"] - summary["nulls"] - summary["infinite"] if MOMENTS in summary["needs"] else 0
    moments: dict[str, float] = {}
    if numeric:
        total, squares = int(summary["sum"], 16), int(summary["squares"], 16)
        moments = {
            "mean": total / (numeric << exact_sums.UNIT_BITS),
            "deviation": exact_sums.root(numeric * squares - total * total, numeric**2 << 2 * exact_sums.UNIT_BITS),
            "minimum": summary["minimum"],
            "maximum": summary["maximum"],
        }
    return Statistics(
        summary["rows"],
        summary["nulls"],
        summary["infinite"],
        distinct=distinct or (0 if summed is None else len(summed)),
        pieces=summary["pieces"],
        counts=None if summed is None else summed.slice(0, most),
        terms={need: _most_frequent_first(table).slice(0, most) for need, table in (terms or {}).items()},
        sample=np.sort(_sample_values(summary)) if SAMPLE in summary["needs"] else None,
        **moments,
    )


def _most_frequent_first(counts: pa.Table) -> pa.Table:
    return _sum_counts([counts]).sort_by([("count", "descending"), ("value", "ascending")])


def _append_counts(tables: list[pa.Table], counts: pa.Table) -> list[pa.Table]:
    """The tables with one more, summed where they are many."""
    tables = [*tables, counts]
    return [_sum_counts(tables)] if len(tables) > 1 and sum(map(len, tables)) > _PENDING_COUNTS else tables


def _sum_counts(tables: list[pa.Table]) -> pa.Table:
    summed = pa.concat_tables([COUNTS_SCHEMA.empty_table(), *tables]).group_by("value", use_threads=False).aggregate([("count", "sum")])
    return pa.table([summed["value"], summed["count_sum"]], schema=COUNTS_SCHEMA)


class Sample:
    """Keeps the SAMPLE_ROWS rows of smallest order among all added rows."""

    def __init__(self) -> None:
        self._order, self._values = np.empty(0, np.uint64), np.empty(0, np.float64)
        self._limit = np.uint64(2**64 - 1)

    def add(self, values: np.ndarray, order: np.ndarray) -> None:
        small = order <= self._limit
        self._order = np.concatenate([self._order, order[small].astype(np.uint64)])
        self._values = np.concatenate([self._values, values[small]])
        if len(self._order) > 2 * SAMPLE_ROWS:
            self._keep_smallest()

    def summary(self) -> dict[str, str]:
        """The sample as JSON values: 16 bytes per row, in base64."""
        self._keep_smallest()
        return _sample_summary(self._order, self._values)

    def _keep_smallest(self) -> None:
        self._order, self._values = _smallest(self._order, self._values)
        if len(self._order) == SAMPLE_ROWS:
            self._limit = self._order.max()


def _sample_summary(order: np.ndarray, values: np.ndarray) -> dict[str, str]:
    arrays = {"order": order.astype("<u8"), "sample": values.astype("<f8")}
    return {name: b64encode(array.tobytes()).decode() for name, array in arrays.items()}


def _sample_values(summary: Mapping[str, str]) -> np.ndarray:
    return np.frombuffer(b64decode(summary["sample"]), "<f8")


def _smallest(order: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The SAMPLE_ROWS rows of smallest order. Ties are broken by value, so the result does not depend on partitions."""
    if len(order) <= SAMPLE_ROWS:
        return order, values
    limit = np.partition(order, SAMPLE_ROWS - 1)[SAMPLE_ROWS - 1]
    below = order < limit
    ties = np.sort(values[order == limit])[: SAMPLE_ROWS - int(below.sum())]
    return np.concatenate([order[below], np.full(len(ties), limit)]), np.concatenate([values[below], ties])

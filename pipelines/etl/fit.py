"""Fits the encoders: one pass over the rows, which also counts them and describes the raw columns.

1. `_gather` runs in Spark's tasks: an `Accumulator` per column, and the rows of each split and of each reason counted.
2. `summaries` makes one summary of all partitions', column by column; Spark sums the value counts where they are many.
3. `gather` merges both on the driver, and `fit` fits the encoders.

All of it is exact, so the result does not depend on partitions or their order. Beside it the pass samples rows and contents for the
data's page, on which nothing else depends.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipelines.config.dataset import Dataset
from pipelines.config.features import SequenceSettings, VocabularySettings
from pipelines.data.features import fit_encoders, needs
from pipelines.data.features.raw import is_category, is_number, is_text
from pipelines.data.features.statistics import COUNTED, COUNTS, COUNTS_SCHEMA, MOMENTS, Accumulator, Statistics, statistics_from_summary
from pipelines.data.versions.data_profile import TEXT_LENGTH, ValueCounts
from pipelines.data.versions.manifest import SPLITS, FittedEncoder
from pipelines.etl import leakage as alike
from pipelines.etl import row_sample, value_counts
from pipelines.etl.key_hashes import KeyHashes, repeat
from pipelines.etl.placement import ALIKE, INTERNAL, ROW, SPLIT, TRAIN, check_splits, quoted
from pipelines.etl.quality import REASON, check_rows_left
from pipelines.etl.summaries import GATHERED, VALUES, rows_of_counts, rows_of_hashes, summaries_of, summarised

Needs = dict[str, frozenset[str]]

# Up to this many counts are summed by the driver, without a shuffle; more are summed by Spark.
COUNTS_ON_DRIVER = 2_000_000
# Spark then returns only the most frequent values: at least this many for each column, or more for a larger `max_size`.
DISTINCT_ON_DRIVER = 1_000_000
# A task returns its counts and hashes after this many rows, which bounds the distinct values that it holds.
_ROWS_BETWEEN_DRAINS = 4_000_000
_MOST_FREQUENT = 10


@dataclass(frozen=True)
class Gathered:
    """The result of one pass over the rows."""

    rows: dict[int, int]
    """Rows that are not refused, by the index of the split; every split has an entry."""
    refused: dict[str, int]
    """Refused rows, by reason."""
    statistics: dict[str, Statistics]
    """Of the training split's raw columns."""
    schema: pa.Schema
    """Of the query's output."""
    samples: dict[str, pa.Table] = field(default_factory=dict)
    """Rows of each split, as `row_sample` keeps them."""
    contents: np.ndarray = field(default_factory=lambda: np.empty((0, len(SPLITS)), np.int64))
    """Rows of a sample of contents, by split, as `alike` counts them."""
    values: dict[str, ValueCounts] = field(default_factory=dict)
    """Rows by value and split, of the raw columns that have few values."""
    keys_repeat: bool = False
    """Whether rows that are not refused seem to have the same key: their hashes are equal."""

    @property
    def query_rows(self) -> int:
        return sum(self.rows.values()) + sum(self.refused.values())


@dataclass(frozen=True)
class Fitted:
    encoders: dict[str, FittedEncoder]
    profile: dict[str, dict[str, Any]]
    """A profile of the training split's raw columns, for JSON."""


def raw_schema(rows: DataFrame) -> pa.Schema:
    """The query's columns as Arrow types, in Spark's tasks and in the served model."""
    fields = [field for field in rows.schema.fields if field.name not in INTERNAL]
    timezone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    return to_arrow_schema(type(rows.schema)(fields), timezone=timezone)


def fit(gathered: Gathered, dataset: Dataset, handed_on: Mapping[str, int]) -> Fitted:
    """`handed_on` are the rows of each table that the query reads.

    Raises SourceError if no row is left, or a split that the config asks for has none, ConfigError if the rows cannot fit an encoder.
    """
    check_rows_left(handed_on, gathered.query_rows, gathered.refused)
    check_splits(gathered.rows, dataset.split)
    profile = {column: _profile(found) for column, found in gathered.statistics.items()}
    return Fitted(fit_encoders(dataset, gathered.statistics, gathered.schema), profile)


def gather(rows: DataFrame, dataset: Dataset) -> Gathered:
    """Count all rows, and describe those whose SPLIT is TRAIN and that are not refused."""
    schema = raw_schema(rows)
    # Moments of all numeric columns are cheap, and the profile needs them.
    wanted = {column: needed | ({MOMENTS} if is_number(schema.field(column).type) else set()) for column, needed in needs(dataset).items()}
    handed, compared = hand(rows, dataset, schema, wanted)
    gathered = handed.mapInArrow(partial(_gather, wanted, compared, bool(dataset.key)), GATHERED).persist()
    try:
        summaries, counted = summaries_of(gathered)
        hashes = gathered.where("hashes IS NOT NULL").selectExpr("column AS bucket", "hashes")
        keys_repeat = bool(dataset.key) and repeat(hashes, sum(summaries.get(SPLIT, [])))
        sizes = [settings.max_size for settings in dataset.encoders.values() if isinstance(settings, VocabularySettings | SequenceSettings)]
        table = _counts(gathered, counted, max([DISTINCT_ON_DRIVER, *sizes]))
    finally:
        gathered.unpersist()
    counts = _by_column(table, [column for column, needed in wanted.items() if COUNTED & needed])
    statistics = {column: statistics_from_summary(summaries[column], counts.get(column)) for column in wanted if column in summaries}
    # A DataFrame without partitions gives no summary.
    by_split = dict(enumerate(summaries.get(SPLIT, [0] * len(SPLITS))))
    samples = row_sample.by_split(summaries.get(ROW, ""))
    contents = {"contents": alike.rows_of(summaries[ALIKE])} if ALIKE in summaries else {}
    counted_elsewhere = {column: statistics[column] for column in statistics if COUNTS in wanted[column]}
    values = value_counts.value_counts(summaries.get(VALUES, {}), counted_elsewhere)
    refused = summaries.get(REASON, {})
    return Gathered(by_split, refused, statistics, schema, samples, **contents, values=values, keys_repeat=keys_repeat)


def hand(rows: DataFrame, dataset: Dataset, schema: pa.Schema, wanted: Needs) -> tuple[DataFrame, list[str]]:
    """What the pass reads of the rows, and the columns that `alike` hashes in it."""
    compared = {column: _is_unchanged(schema.field(column).type, wanted[column]) for column in alike.compared(dataset)}
    unread = alike.hashed_by_spark(rows, [column for column, is_unchanged in compared.items() if not is_unchanged])
    columns = [_handed(quoted(column), schema.field(column).type, needed) for column, needed in wanted.items()]
    handed = rows.selectExpr(SPLIT, ROW, REASON, f"{unread} AS {ALIKE}", *columns)
    return handed, [column for column, is_unchanged in compared.items() if is_unchanged]


def _is_unchanged(kind: pa.DataType, needed: frozenset[str]) -> bool:
    """Whether the pass reads a category's or a number's whole value."""
    return is_category(kind) and (bool(needed) or not is_text(kind))


def _handed(column: str, kind: pa.DataType, needed: frozenset[str]) -> str:
    """What the pass reads of a column, both in SQL: of a text that no statistic needs, what the sample keeps; of bytes and nested
    values, whether they are there."""
    if needed or _is_unchanged(kind, needed):
        return column
    beginning = f"substring({column}, 1, {TEXT_LENGTH})" if is_text(kind) else f"CASE WHEN {column} IS NOT NULL THEN true END"
    return f"{beginning} AS {column}"


def _gather(wanted: Needs, compared: list[str], keyed: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A partition's counts, summaries and hashes of keys, as rows of GATHERED. `compared` are the columns that `alike` hashes here."""
    accumulators = {column: Accumulator(needed) for column, needed in wanted.items()}
    counted = dict.fromkeys([SPLIT, REASON, ROW, ALIKE, VALUES, *wanted], 0)
    by_split = np.zeros(len(SPLITS), np.int64)
    refused: Counter[str] = Counter()
    sample, contents, keys = row_sample.RowSample(keyed, row_sample.rows_of_each_split(len(wanted))), alike.Contents(), KeyHashes()
    values = value_counts.ValueCounter(wanted, {column for column, needed in wanted.items() if COUNTS in needed})
    undrained = 0
    for batch in _accepted(batches, refused):
        split, row = batch.column(SPLIT).to_numpy(), batch.column(ROW).to_numpy().view(np.uint64)
        raw = {column: batch.column(column) for column in wanted}
        sample.add(raw, split, row)
        contents.add(alike.likeness(batch.column(ALIKE).to_numpy().view(np.uint64), [raw[column] for column in compared]), split)
        values.add(raw, split)
        if keyed:
            keys.add(row)
        by_split += np.bincount(split, minlength=len(SPLITS))
        train = batch.filter(pa.array(split == TRAIN))
        order = train.column(ROW).to_numpy().view(np.uint64)
        for column, accumulator in accumulators.items():
            accumulator.add(train.column(column), order)
        undrained += len(batch)
        if undrained >= _ROWS_BETWEEN_DRAINS:
            yield from _drained(accumulators, wanted, counted)
            yield from map(rows_of_hashes, keys.drain().to_batches())
            undrained = 0
    yield from _drained(accumulators, wanted, counted)
    yield from map(rows_of_hashes, keys.drain().to_batches())
    summaries = {column: accumulator.summary() for column, accumulator in accumulators.items()}
    whole = {SPLIT: by_split.tolist(), REASON: refused, ROW: sample.summary(), ALIKE: contents.summary(), VALUES: values.summary()}
    yield summarised({**whole, **summaries}, counted)


def _accepted(batches: Iterator[pa.RecordBatch], refused: Counter[str]) -> Iterator[pa.RecordBatch]:
    """The batches without refused rows, which are counted by reason."""
    for batch in batches:
        reasons = batch.column(REASON)
        refused.update(reasons.drop_null().to_pylist())
        yield batch.filter(reasons.is_null()) if reasons.null_count < len(batch) else batch


def _drained(accumulators: dict[str, Accumulator], wanted: Needs, counted: dict[str, int]) -> Iterator[pa.RecordBatch]:
    for column, accumulator in accumulators.items():
        if COUNTED & wanted[column]:
            for batch in accumulator.drain().to_batches():
                counted[column] += len(batch)
                yield rows_of_counts(column, batch)


def _counts(gathered: DataFrame, counted: int, most: int) -> pa.Table:
    """(column, value, count), each value once or more often; the `most` frequent of a column where there are very many."""
    counts = gathered.where("value IS NOT NULL").select("column", "value", "count")
    if counted > COUNTS_ON_DRIVER:
        summed = counts.groupBy("column", "value").agg(F.sum("count").alias("count"))
        rank = F.row_number().over(Window.partitionBy("column").orderBy(F.desc("count"), "value"))
        counts = summed.withColumn("rank", rank).where(F.col("rank") <= most).drop("rank")
    return counts.toArrow()


def _by_column(counts: pa.Table, columns: list[str]) -> dict[str, pa.Table]:
    """The (value, count) of each column, of a table that is sorted once: to search it for every column would take columns × rows."""
    numbers = pc.index_in(counts["column"], pa.array(columns, pa.string())).to_numpy()
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(columns) + 1))
    # One array of all texts may exceed the 2 GiB of a `string`.
    table = pa.table([counts["value"].cast(pa.large_string()), counts["count"]], names=COUNTS_SCHEMA.names).take(pa.array(order))
    spans = zip(columns, pairwise(ends.tolist()), strict=True)
    return {column: table.slice(start, end - start).cast(COUNTS_SCHEMA) for column, (start, end) in spans}


def _profile(found: Statistics) -> dict[str, Any]:
    profile: dict[str, Any] = {"rows": found.rows, "nulls": found.nulls}
    if found.mean is not None:
        profile |= {"mean": found.mean, "deviation": found.deviation, "minimum": found.minimum, "maximum": found.maximum}
    if found.infinite:
        profile["infinite"] = found.infinite
    if found.counts is not None:
        frequent = found.counts.slice(0, _MOST_FREQUENT)
        profile |= {"distinct": len(found.counts), "most_frequent": dict(zip(*frequent.to_pydict().values(), strict=True))}
    return profile

"""Fits the encoders: one pass over the rows, which also counts them and describes the raw columns.

1. `_gather` runs in Spark's tasks: an `Accumulator` per column, and the rows of each split and of each reason counted.
2. `summaries` makes one summary of all partitions', column by column; Spark sums the value counts where they are many.
3. `gather` merges both on the driver, and `fit` fits the encoders.

All of it is exact, so the result does not depend on partitions or their order. Beside it the pass samples rows and contents for the
data's page, on which nothing else depends.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipelines.config.dataset.dataset import Dataset
from pipelines.config.features import SequenceSettings, TermsSettings, VocabularySettings
from pipelines.data.features import fit_encoders, needs
from pipelines.data.features.auto import Choice
from pipelines.data.features.auto_exact import settle
from pipelines.data.features.ngrams import term_rule
from pipelines.data.features.raw import is_category, is_number, is_text, missing_values
from pipelines.data.features.statistics import COUNTED, COUNTS, COUNTS_SCHEMA, MOMENTS, Accumulator, Statistics, statistics_from_summary
from pipelines.data.sources.files.folder_columns import quote_name
from pipelines.data.versions.data_profile import TEXT_LENGTH, ValueCounts
from pipelines.data.versions.manifest import SPLITS, FittedEncoder
from pipelines.etl import leakage, row_sample, value_counts
from pipelines.etl.key_hashes import KeyHashes, has_repeated_key, repeats_in_bucket
from pipelines.etl.quality import REASON, check_rows_left
from pipelines.etl.raw_schema import raw_schema
from pipelines.etl.splits import ALIKE, ROW, SPLIT, TRAIN, check_splits
from pipelines.etl.summaries import GATHERED, MISSING, VALUES, collect_summaries, count_batch, hash_batch, merge_summaries, summary_batch

Needs = dict[str, frozenset[str]]

# Up to this many counts are summed by the driver, without a shuffle; more are summed by Spark.
COUNTS_ON_DRIVER = 2_000_000
# Spark then returns only the most frequent values: at least this many for each column, or more for a larger `max_size`.
DISTINCT_ON_DRIVER = 1_000_000
# A task returns its counts and hashes after this many rows or counts of terms, which bounds the distinct values that it holds.
_ROWS_BETWEEN_DRAINS = 4_000_000
_TERMS_BETWEEN_DRAINS = 2_000_000
_MOST_FREQUENT = 10


@dataclass(frozen=True)
class RowSummary:
    """The result of one pass over the rows."""

    rows: dict[int, int]
    """Rows that are not refused, by the index of the split; every split has an entry."""
    refused: dict[str, int]
    """Refused rows, by reason."""
    statistics: dict[str, Statistics]
    """Statistics of the training split's raw columns."""
    schema: pa.Schema
    """The query's output."""
    samples: dict[str, pa.Table] = field(default_factory=dict)
    """Rows of each split, as `row_sample` keeps them."""
    contents: np.ndarray = field(default_factory=lambda: np.empty((0, len(SPLITS)), np.int64))
    """Rows of a sample of contents, by split, as `leakage` counts them."""
    values: dict[str, ValueCounts] = field(default_factory=dict)
    """Rows by value and split, of the raw columns that have few values."""
    missing: dict[str, int] = field(default_factory=dict)
    """NULL and NaN of all splits, by the raw columns that were asked for."""
    keys_repeat: bool = False
    """Whether rows that are not refused seem to have the same key: their hashes are equal."""

    @property
    def query_rows(self) -> int:
        return sum(self.rows.values()) + sum(self.refused.values())


def fit_columns(summary: RowSummary, choice: Choice, handed_on: Mapping[str, int]) -> tuple[Choice, dict[str, FittedEncoder]]:
    """Settle what was chosen for `auto`, and fit the encoders. `handed_on` are the rows of each table that the query reads.

    Raises SourceError if no row is left, or a split that the config asks for has none, ConfigError if the rows cannot fit an encoder.
    """
    check_rows_left(handed_on, summary.query_rows, summary.refused)
    check_splits(summary.rows, choice.dataset.split)
    settled = settle(choice, summary.statistics, summary.missing, sum(summary.rows.values())) if choice.columns else choice
    return settled, fit_encoders(settled.dataset, summary.statistics, summary.schema)


def gather(rows: DataFrame, dataset: Dataset, missing_in: Collection[str] = (), most_rows: float = math.inf) -> RowSummary:
    """Count all rows, `most_rows` or fewer, and describe those whose SPLIT is TRAIN and that are not refused. In the columns `missing_in`,
    NULL and NaN of all splits are counted."""
    schema = raw_schema(rows)
    # Moments of all numeric columns are cheap, and the profile needs them.
    column_needs = {
        column: needed | ({MOMENTS} if is_number(schema.field(column).type) else set()) for column, needed in needs(dataset).items()
    }
    pass_rows, hashed_columns = _select_columns(rows, dataset, schema, column_needs)
    task_results = pass_rows.mapInArrow(partial(_gather, column_needs, hashed_columns, list(missing_in), bool(dataset.key)), GATHERED)
    collect = _collect_in_one_job if most_rows * _counts_of_a_row(dataset, column_needs) <= COUNTS_ON_DRIVER else _collect
    summaries, keys_repeat, counted = collect(task_results, dataset)
    names = [_count_name(column, need) for column, needed in column_needs.items() for need in _count_statistics(needed)]
    counts = _counts_by_column(counted, names)
    statistics = {
        column: statistics_from_summary(
            summaries[column],
            counts.get(column),
            {need: counts[_count_name(column, need)] for need in needed if term_rule(need)},
        )
        for column, needed in column_needs.items()
        if column in summaries
    }
    # A DataFrame without partitions gives no summary.
    by_split = dict(enumerate(summaries.get(SPLIT, [0] * len(SPLITS))))
    samples = row_sample.rows_by_split(summaries.get(ROW, ""))
    contents = {"contents": leakage.content_rows(summaries[ALIKE])} if ALIKE in summaries else {}
    train_statistics = {column: statistics[column] for column in statistics if COUNTS in column_needs[column]}
    values = value_counts.value_counts(summaries.get(VALUES, {}), train_statistics)
    refused = summaries.get(REASON, {})
    missing = dict(zip(missing_in, summaries[MISSING], strict=True)) if summaries.get(MISSING) else {}
    return RowSummary(by_split, refused, statistics, schema, samples, **contents, values=values, missing=missing, keys_repeat=keys_repeat)


def _collect(task_results: DataFrame, dataset: Dataset) -> tuple[dict[str, Any], bool, pa.Table]:
    """Collect the summaries by column, whether a key repeats, and the counts of values."""
    task_results.persist()
    try:
        summaries, number_of_counts = collect_summaries(task_results)
        hashes = task_results.where("hashes IS NOT NULL").selectExpr("column AS bucket", "hashes")
        keys_repeat = bool(dataset.key) and has_repeated_key(hashes, sum(summaries.get(SPLIT, [])))
        counting = VocabularySettings | SequenceSettings | TermsSettings
        sizes = [settings.max_size for settings in dataset.encoders.values() if isinstance(settings, counting)]
        return summaries, keys_repeat, _sum_counts(task_results, number_of_counts, max([DISTINCT_ON_DRIVER, *sizes]))
    finally:
        task_results.unpersist()


def _collect_in_one_job(task_results: DataFrame, dataset: Dataset) -> tuple[dict[str, Any], bool, pa.Table]:
    """Collect the same of few rows: the driver takes all results of the tasks, and merges them."""
    results = task_results.toArrow()
    hashes = results.filter(pc.is_valid(results["hashes"])).select(["column", "hashes"]).rename_columns(["bucket", "hashes"])
    counts = results.filter(pc.is_valid(results["value"])).select(["column", "value", "count"])
    return merge_summaries(results), bool(dataset.key) and repeats_in_bucket(hashes.to_batches()), counts


def _select_columns(rows: DataFrame, dataset: Dataset, schema: pa.Schema, column_needs: Needs) -> tuple[DataFrame, list[str]]:
    """The columns that the pass reads, and the names of those that `leakage` hashes in Python; Spark hashes the others."""
    is_hashed_here = {column: _is_unchanged(schema.field(column).type, column_needs[column]) for column in leakage.feature_columns(dataset)}
    spark_hash = leakage.spark_hash_sql(rows, [column for column, is_unchanged in is_hashed_here.items() if not is_unchanged])
    columns = [_column_sql(quote_name(column), schema.field(column).type, needed) for column, needed in column_needs.items()]
    pass_rows = rows.selectExpr(SPLIT, ROW, REASON, f"{spark_hash} AS {ALIKE}", *columns)
    return pass_rows, [column for column, is_unchanged in is_hashed_here.items() if is_unchanged]


def _is_unchanged(kind: pa.DataType, needed: frozenset[str]) -> bool:
    """Whether the pass reads all of a value: of a number, or of a category that a statistic needs."""
    return is_category(kind) and (bool(needed) or not is_text(kind))


def _column_sql(column: str, kind: pa.DataType, needed: frozenset[str]) -> str:
    """SQL of the part of a column that the pass reads: of a text that no statistic needs, what the sample keeps; of bytes and nested
    values, whether they are NULL."""
    if needed or _is_unchanged(kind, needed):
        return column
    beginning = f"substring({column}, 1, {TEXT_LENGTH})" if is_text(kind) else f"CASE WHEN {column} IS NOT NULL THEN true END"
    return f"{beginning} AS {column}"


def _gather(
    column_needs: Needs, hashed_columns: list[str], missing_in: list[str], has_key: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """A partition's counts, summaries and hashes of keys, as rows of GATHERED. `leakage` hashes `hashed_columns`."""
    accumulators = {column: Accumulator(needed) for column, needed in column_needs.items()}
    rows_counted = dict.fromkeys([SPLIT, REASON, ROW, ALIKE, VALUES, MISSING, *column_needs], 0)
    rows_by_split = np.zeros(len(SPLITS), np.int64)
    refused: Counter[str] = Counter()
    sample = row_sample.RowSample(has_key, row_sample.rows_per_split(len(column_needs)))
    contents, keys = leakage.ContentSample(), KeyHashes()
    values = value_counts.ValueCounter(column_needs, {column for column, needed in column_needs.items() if COUNTS in needed})
    rows_since_drain, missing = 0, np.zeros(len(missing_in), np.int64)
    for batch in _drop_refused(batches, refused):
        split, row = batch.column(SPLIT).to_numpy(), batch.column(ROW).to_numpy().view(np.uint64)
        raw = {column: batch.column(column) for column in column_needs}
        sample.add(raw, split, row)
        contents.add(leakage.likeness(batch.column(ALIKE).to_numpy().view(np.uint64), [raw[column] for column in hashed_columns]), split)
        values.add(raw, split)
        missing += np.array([missing_values(raw[column]) for column in missing_in], np.int64)
        if has_key:
            keys.add(row)
        rows_by_split += np.bincount(split, minlength=len(SPLITS))
        train = batch.filter(pa.array(split == TRAIN))
        order = train.column(ROW).to_numpy().view(np.uint64)
        for column, accumulator in accumulators.items():
            accumulator.add(train.column(column), order)
        rows_since_drain += len(batch)
        if rows_since_drain >= _ROWS_BETWEEN_DRAINS or sum(one.terms_held for one in accumulators.values()) >= _TERMS_BETWEEN_DRAINS:
            yield from _drain_counts(accumulators, column_needs, rows_counted)
            yield from map(hash_batch, keys.drain().to_batches())
            rows_since_drain = 0
    yield from _drain_counts(accumulators, column_needs, rows_counted)
    yield from map(hash_batch, keys.drain().to_batches())
    summaries: dict[str, Any] = {column: accumulator.summary() for column, accumulator in accumulators.items()}
    summaries |= {SPLIT: rows_by_split.tolist(), REASON: refused, MISSING: missing.tolist()}
    summaries |= {ROW: sample.summary(), ALIKE: contents.summary(), VALUES: values.summary()}
    yield summary_batch(summaries, rows_counted)


def _drop_refused(batches: Iterator[pa.RecordBatch], refused: Counter[str]) -> Iterator[pa.RecordBatch]:
    """Count refused rows by reason, and leave them out of the batches."""
    for batch in batches:
        reasons = batch.column(REASON)
        refused.update(reasons.drop_null().to_pylist())
        yield batch.filter(reasons.is_null()) if reasons.null_count < len(batch) else batch


def _drain_counts(accumulators: dict[str, Accumulator], column_needs: Needs, rows_counted: dict[str, int]) -> Iterator[pa.RecordBatch]:
    for column, accumulator in accumulators.items():
        for need in _count_statistics(column_needs[column]):
            for batch in accumulator.drain(need if term_rule(need) else "").to_batches():
                rows_counted[column] += len(batch)
                yield count_batch(_count_name(column, need), batch)


def _count_statistics(needed: frozenset[str]) -> list[str]:
    """The statistics that are counts."""
    return sorted(need for need in needed if need in COUNTED or term_rule(need))


def _count_name(column: str, need: str) -> str:
    """The name under which a column's counts are gathered: the column's, or for terms one that no column has."""
    return f"{need}\n{column}" if term_rule(need) else column


def _counts_of_a_row(dataset: Dataset, column_needs: Needs) -> int:
    """About the most counts of a row: one of each column, and the terms of a text."""
    return len(column_needs) + sum(settings.length for settings in dataset.encoders.values() if isinstance(settings, TermsSettings))


def _sum_counts(task_results: DataFrame, number_of_counts: int, most: int) -> pa.Table:
    """(column, value, count), each value once or more often; the `most` frequent of a column where there are very many."""
    counts = task_results.where("value IS NOT NULL").select("column", "value", "count")
    if number_of_counts > COUNTS_ON_DRIVER:
        summed = counts.groupBy("column", "value").agg(F.sum("count").alias("count"))
        rank = F.row_number().over(Window.partitionBy("column").orderBy(F.desc("count"), "value"))
        counts = summed.withColumn("rank", rank).where(F.col("rank") <= most).drop("rank")
    return counts.toArrow()


def _counts_by_column(counts: pa.Table, columns: list[str]) -> dict[str, pa.Table]:
    """The (value, count) of each column, of a table that is sorted once: to search it for every column would take columns × rows."""
    numbers = pc.index_in(counts["column"], pa.array(columns, pa.string())).to_numpy()
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(columns) + 1))
    # One array of all texts may exceed the 2 GiB of a `string`.
    table = pa.table([counts["value"].cast(pa.large_string()), counts["count"]], names=COUNTS_SCHEMA.names).take(pa.array(order))
    spans = zip(columns, pairwise(ends.tolist()), strict=True)
    return {column: table.slice(start, end - start).cast(COUNTS_SCHEMA) for column, (start, end) in spans}


def column_profile(statistics: Statistics) -> dict[str, Any]:
    """A profile of a raw column, for JSON."""
    profile: dict[str, Any] = {"rows": statistics.rows, "nulls": statistics.nulls}
    if statistics.mean is not None:
        profile |= {name: getattr(statistics, name) for name in ("mean", "deviation", "minimum", "maximum")}
    if statistics.infinite:
        profile["infinite"] = statistics.infinite
    if statistics.counts is not None:
        frequent = statistics.counts.slice(0, _MOST_FREQUENT)
        profile |= {"distinct": len(statistics.counts), "most_frequent": dict(zip(*frequent.to_pydict().values(), strict=True))}
    return profile

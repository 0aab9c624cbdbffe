"""Gathers statistics of all rows: what the tasks return becomes one summary on the driver."""

import math
from collections import Counter
from collections.abc import Collection
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
from pipelines.config.features.categories import SequenceSettings, TermsSettings, VocabularySettings
from pipelines.data.features import needs
from pipelines.data.features.base import COUNTS, MOMENTS
from pipelines.data.features.raw import is_number, is_text
from pipelines.data.features.statistics import COUNTS_SCHEMA, Statistics, statistics_from_summary
from pipelines.data.features.text_pieces import term_rule
from pipelines.data.sources.spark_sql import quote_name
from pipelines.data.versions.data_profile import TEXT_LENGTH, ValueCounts
from pipelines.data.versions.manifest import SPLITS
from pipelines.etl.refusals import REASON, SUPERSEDED
from pipelines.etl.splits.split_assignment import ALIKE, ROW, SPLIT, raw_schema
from pipelines.etl.statistics import partition
from pipelines.etl.statistics.page_summary import hash_features, is_unchanged, page_fields

# Up to this many counts are summed by the driver, without a shuffle; more are summed by Spark.
COUNTS_ON_DRIVER = 2_000_000
# Spark then returns only the most frequent values: at least this many for each column, or more for a larger `max_size`.
DISTINCT_ON_DRIVER = 1_000_000
Collected = tuple[dict[str, Any], bool, pa.Table, dict[str, int]]
"""The summaries by column, whether a key repeats, the counts of values, and how many different ones the columns have that lack some."""


@dataclass(frozen=True)
class RowSummary:
    """The result of one pass over the rows."""

    rows: dict[int, int]
    """Rows that are not refused, by the index of the split; every split has an entry."""
    refused: dict[str, int]
    """Refused rows, by reason; without those that newer rows supersede."""
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
    superseded: int = 0
    """Rows left out since a newer one has their key."""
    keys_repeat: bool = False
    """Whether rows that are not refused seem to have the same key: their hashes are equal."""

    @property
    def query_rows(self) -> int:
        return sum(self.rows.values()) + sum(self.refused.values()) + self.superseded


def gather(rows: DataFrame, dataset: Dataset, missing_in: Collection[str] = (), most_rows: float = math.inf) -> RowSummary:
    """Count all rows, `most_rows` or fewer, and describe those whose SPLIT is TRAIN and that are not refused. In the columns `missing_in`,
    NULL and NaN of all splits are counted."""
    schema = raw_schema(rows)
    # Moments of all numeric columns are cheap, and the profile needs them.
    column_needs = {
        column: needed | ({MOMENTS} if is_number(schema.field(column).type) else set()) for column, needed in needs(dataset).items()
    }
    pass_rows, hashed_columns = _select_columns(rows, dataset, schema, column_needs)
    task_results = pass_rows.mapInArrow(
        partial(partition.summarize_partition, column_needs, hashed_columns, list(missing_in), bool(dataset.key)), partition.GATHERED
    )
    # About the most counts of a row: one of each column, and the terms of a text.
    most_terms = sum(settings.length for settings in dataset.encoders.values() if isinstance(settings, TermsSettings))
    collect = _collect_in_one_job if most_rows * (len(column_needs) + most_terms) <= COUNTS_ON_DRIVER else _collect
    counting = VocabularySettings | SequenceSettings | TermsSettings
    most = max([DISTINCT_ON_DRIVER, *(settings.max_size for settings in dataset.encoders.values() if isinstance(settings, counting))])
    summaries, keys_repeat, counted, distinct = collect(task_results, dataset, most)
    names = [partition.count_name(column, need) for column, needed in column_needs.items() for need in partition.count_statistics(needed)]
    counts = _counts_by_column(counted, names)
    statistics = {
        column: statistics_from_summary(
            summaries[column],
            counts.get(column),
            {need: counts[partition.count_name(column, need)] for need in needed if term_rule(need)},
            most,  # however many tasks there were
            distinct.get(column),
        )
        for column, needed in column_needs.items()
        if column in summaries
    }
    # A DataFrame without partitions gives no summary.
    by_split = dict(enumerate(summaries.get(SPLIT, [0] * len(SPLITS))))
    train_statistics = {column: statistics[column] for column in statistics if COUNTS in column_needs[column]}
    refused = dict(summaries.get(REASON, {}))
    superseded = refused.pop(SUPERSEDED, 0)
    missing = dict(zip(missing_in, summaries[partition.MISSING], strict=True)) if summaries.get(partition.MISSING) else {}
    return RowSummary(
        by_split,
        refused,
        statistics,
        schema,
        **page_fields(summaries, train_statistics),
        missing=missing,
        superseded=superseded,
        keys_repeat=keys_repeat,
    )


def count_new_rows(rows: DataFrame) -> RowSummary:
    """Count the rows of an increment, which keeps the encoders of its parent, so that no statistics are needed."""
    counts = rows.groupBy(SPLIT, REASON).count().collect()
    refused = Counter[str]()
    for row in counts:
        if row[REASON] is not None:
            refused[row[REASON]] += row["count"]
    accepted = {row[SPLIT]: row["count"] for row in counts if row[REASON] is None}
    superseded = refused.pop(SUPERSEDED, 0)
    by_split = {split: accepted.get(split, 0) for split in range(len(SPLITS))}
    return RowSummary(by_split, dict(refused), {}, raw_schema(rows), superseded=superseded)


def _collect(task_results: DataFrame, dataset: Dataset, most: int) -> Collected:
    task_results.persist()
    try:
        summaries, number_of_counts = partition.collect_summaries(task_results)
        hashes = task_results.where("hashes IS NOT NULL").selectExpr("column AS bucket", "hashes")
        keys_repeat = bool(dataset.key) and partition.has_repeated_key(hashes, sum(summaries.get(SPLIT, [])))
        return summaries, keys_repeat, *_sum_counts(task_results, number_of_counts, most)
    finally:
        task_results.unpersist()


def _collect_in_one_job(task_results: DataFrame, dataset: Dataset, most: int) -> Collected:
    """Collect the same of few rows: the driver takes all results of the tasks, and merges them."""
    results = task_results.toArrow()
    hashes = results.filter(pc.is_valid(results["hashes"])).select(["column", "hashes"]).rename_columns(["bucket", "hashes"])
    counts = results.filter(pc.is_valid(results["value"])).select(["column", "value", "count"])
    return partition.merge_summaries(results), bool(dataset.key) and partition.repeats_in_bucket(hashes.to_batches()), counts, {}


def _select_columns(rows: DataFrame, dataset: Dataset, schema: pa.Schema, column_needs: partition.Needs) -> tuple[DataFrame, list[str]]:
    """The columns that the pass reads, and the names of those that `leakage` hashes in Python; Spark hashes the others."""
    spark_hash, hashed_columns = hash_features(rows, dataset, schema, column_needs)
    columns = []
    for column, needed in column_needs.items():
        name, kind = quote_name(column), schema.field(column).type
        if needed or is_unchanged(kind, needed):
            columns.append(name)
        elif is_text(kind):  # what the sample keeps, since no statistic needs the rest
            columns.append(f"substring({name}, 1, {TEXT_LENGTH}) AS {name}")
        else:  # of bytes and nested values, whether they are NULL
            columns.append(f"CASE WHEN {name} IS NOT NULL THEN true END AS {name}")
    return rows.selectExpr(SPLIT, ROW, REASON, f"{spark_hash} AS {ALIKE}", *columns), hashed_columns


def _sum_counts(task_results: DataFrame, number_of_counts: int, most: int) -> tuple[pa.Table, dict[str, int]]:
    """(column, value, count), each value once or more often. Where there are very many, the `most` frequent of a column, and the number of
    all by column."""
    counts = task_results.where("value IS NOT NULL").select("column", "value", "count")
    if number_of_counts > COUNTS_ON_DRIVER:
        summed = counts.groupBy("column", "value").agg(F.sum("count").alias("count"))
        column = Window.partitionBy("column")
        columns = {"rank": F.row_number().over(column.orderBy(F.desc("count"), "value")), "distinct": F.count(F.lit(1)).over(column)}
        ranked = summed.withColumns(columns).where(F.col("rank") <= most).toArrow()
        firsts = ranked.filter(pc.equal(ranked["rank"], 1))
        distinct = dict(zip(firsts["column"].to_pylist(), firsts["distinct"].to_pylist(), strict=True))
        return ranked.drop_columns(["rank", "distinct"]), distinct
    return counts.toArrow(), {}


def _counts_by_column(counts: pa.Table, columns: list[str]) -> dict[str, pa.Table]:
    """The (value, count) of each column, of a table that is sorted once: to search it for every column would take columns × rows."""
    numbers = pc.index_in(counts["column"], pa.array(columns, pa.string())).to_numpy()
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(columns) + 1))
    # One array of all texts may exceed the 2 GiB of a `string`.
    table = pa.table([counts["value"].cast(pa.large_string()), counts["count"]], names=COUNTS_SCHEMA.names).take(pa.array(order))
    spans = zip(columns, pairwise(ends.tolist()), strict=True)
    return {column: table.slice(start, end - start).cast(COUNTS_SCHEMA) for column, (start, end) in spans}

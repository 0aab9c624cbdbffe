"""Fits the encoders: one pass over the rows, which also counts them and describes the raw columns.

1. `_gather` runs in Spark's tasks: an `Accumulator` per column, and the rows of each split and of each reason counted.
2. `_combine` makes one summary of all partitions', column by column; Spark sums the value counts where they are many.
3. `gather` merges both on the driver, and `fit` fits the encoders.

All of it is exact, so the result does not depend on partitions or their order.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipelines.config.dataset import Dataset
from pipelines.config.features import Sequence, Vocabulary
from pipelines.dataset.manifest import SPLITS, FittedEncoder
from pipelines.etl.placement import INTERNAL, ROW, SPLIT, TRAIN, check_splits, named
from pipelines.etl.quality import REASON
from pipelines.features import fit_encoders, needs
from pipelines.features.raw import is_number
from pipelines.features.statistics import COUNTED, COUNTS_SCHEMA, MOMENTS, Accumulator, Statistics, combine, merge

Needs = dict[str, frozenset[str]]

# Tasks return the count of a value, or a column's summary as JSON with the number of its counts.
_GATHERED = "column string, value string, count bigint, summary string"
# Up to this many counts are summed by the driver, without a shuffle; more are summed by Spark.
COUNTS_ON_DRIVER = 2_000_000
# Spark then returns only the most frequent values: at least this many for each column, or more for a larger `max_size`.
DISTINCT_ON_DRIVER = 1_000_000
# A task returns its counts after this many rows, which bounds the distinct values that it holds.
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


def fit(gathered: Gathered, dataset: Dataset) -> Fitted:
    """Raises SourceError if a split that the config asks for has no rows, ConfigError if the rows cannot fit an encoder."""
    check_splits(gathered.rows, dataset.split)
    profile = {column: _profile(found) for column, found in gathered.statistics.items()}
    return Fitted(fit_encoders(dataset, gathered.statistics, gathered.schema), profile)


def gather(rows: DataFrame, dataset: Dataset) -> Gathered:
    """Count all rows, and describe those whose SPLIT is TRAIN and that are not refused."""
    schema = raw_schema(rows)
    # Moments of all numeric columns are cheap, and the profile needs them.
    wanted = {column: needed | ({MOMENTS} if is_number(schema.field(column).type) else set()) for column, needed in needs(dataset).items()}
    columns = [named(column) if needed else F.when(named(column).isNotNull(), True).alias(column) for column, needed in wanted.items()]
    gathered = rows.select(SPLIT, ROW, REASON, *columns).mapInArrow(partial(_gather, wanted), _GATHERED).persist()
    try:
        summaries, counted = _summaries(gathered)
        sizes = [settings.max_size for settings in dataset.encoders.values() if isinstance(settings, Vocabulary | Sequence)]
        table = _counts(gathered, counted, max([DISTINCT_ON_DRIVER, *sizes]))
    finally:
        gathered.unpersist()
    counts = {
        column: table.filter(pc.equal(table["column"], column)).select(["value", "count"]).cast(COUNTS_SCHEMA)
        for column, needed in wanted.items()
        if COUNTED & needed
    }
    statistics = {column: merge(summaries[column], counts.get(column)) for column in wanted if column in summaries}
    # A DataFrame without partitions gives no summary.
    return Gathered(dict(enumerate(summaries.get(SPLIT, [0] * len(SPLITS)))), summaries.get(REASON, {}), statistics, schema)


def _gather(wanted: Needs, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A partition's counts and summaries, as rows of _GATHERED."""
    accumulators = {column: Accumulator(needed) for column, needed in wanted.items()}
    counted = dict.fromkeys([SPLIT, REASON, *wanted], 0)
    by_split = np.zeros(len(SPLITS), np.int64)
    refused: Counter[str] = Counter()
    undrained = 0
    for batch in _accepted(batches, refused):
        split = batch.column(SPLIT).to_numpy()
        by_split += np.bincount(split, minlength=len(SPLITS))
        train = batch.filter(pa.array(split == TRAIN))
        order = train.column(ROW).to_numpy().view(np.uint64)
        for column, accumulator in accumulators.items():
            accumulator.add(train.column(column), order)
        undrained += len(train)
        if undrained >= _ROWS_BETWEEN_DRAINS:
            yield from _drained(accumulators, wanted, counted)
            undrained = 0
    yield from _drained(accumulators, wanted, counted)
    summaries = {column: accumulator.summary() for column, accumulator in accumulators.items()}
    yield _summarised({SPLIT: by_split.tolist(), REASON: refused, **summaries}, counted)


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
                columns = [pa.repeat(column, len(batch)), *batch.columns, pa.nulls(len(batch), pa.string())]
                yield pa.RecordBatch.from_arrays(columns, names=["column", "value", "count", "summary"])


def _summarised(summaries: dict[str, Any], counted: dict[str, int]) -> pa.RecordBatch:
    texts = [json.dumps(summary) for summary in summaries.values()]
    columns = [pa.array(summaries), pa.nulls(len(texts), pa.string()), pa.array([counted[column] for column in summaries]), pa.array(texts)]
    return pa.RecordBatch.from_arrays(columns, names=["column", "value", "count", "summary"])


def _combine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the partitions' summaries of each column. A sample takes 2 MB, so they are merged one by one."""
    found: dict[str, Any] = {}
    counted: dict[str, int] = {}
    for batch in batches:
        for column, count, text in zip(*(batch.column(name) for name in ("column", "count", "summary")), strict=True):
            name, summary = column.as_py(), json.loads(text.as_py())
            if name in found:
                summary = _combined(name, found[name], summary)
            found[name], counted[name] = summary, counted.get(name, 0) + count.as_py()
    if found:
        yield _summarised(found, counted)


def _combined(name: str, one: Any, other: Any) -> Any:
    if name == SPLIT:
        return np.add(one, other).tolist()
    return Counter(one) + Counter(other) if name == REASON else combine([one, other])


def _summaries(gathered: DataFrame) -> tuple[dict[str, Any], int]:
    """Summaries by column, and the number of counts of all columns."""
    by_column = gathered.where("summary IS NOT NULL").repartition(gathered.sparkSession.sparkContext.defaultParallelism, "column")
    rows = by_column.mapInArrow(_combine, _GATHERED).select("column", "summary", "count").collect()
    return {row.column: json.loads(row.summary) for row in rows}, sum(row["count"] for row in rows)


def _counts(gathered: DataFrame, counted: int, most: int) -> pa.Table:
    """(column, value, count), each value once or more often; the `most` frequent of a column where there are very many."""
    counts = gathered.where("summary IS NULL").select("column", "value", "count")
    if counted > COUNTS_ON_DRIVER:
        summed = counts.groupBy("column", "value").agg(F.sum("count").alias("count"))
        rank = F.row_number().over(Window.partitionBy("column").orderBy(F.desc("count"), "value"))
        counts = summed.withColumn("rank", rank).where(F.col("rank") <= most).drop("rank")
    return counts.toArrow()


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

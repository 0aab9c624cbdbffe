"""Fits the encoders: one pass over the rows, which also counts them and describes the raw columns.

1. `_gather` runs in Spark's tasks: an `Accumulator` per column, and the rows of each split counted.
2. Spark sums the value counts, which may be many; the driver merges the summaries, which are few.

All of it is exact, so neither partitions nor their order leave a trace.
"""

import json
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
from pipelines.dataset.manifest import SPLITS, Encoded
from pipelines.etl.order import INTERNAL, ROW, SPLIT, TRAIN, named
from pipelines.features import fit_encoders, needs
from pipelines.features.raw import is_number
from pipelines.features.statistics import COUNTS, COUNTS_SCHEMA, MOMENTS, Accumulator, Statistics, merge

Needs = dict[str, frozenset[str]]

_GATHERED = "column string, value string, count bigint, summary string"
_GATHERED_ARROW = pa.schema([("column", pa.string()), ("value", pa.string()), ("count", pa.int64()), ("summary", pa.string())])
# Distinct values of a column that reach the driver, at least; a larger `max_size` raises it.
_DISTINCT = 1_000_000
_MOST_FREQUENT = 10
# A task hands its counts over after so many rows, so that it holds a bounded number of distinct values.
_ROWS_BETWEEN_DRAINS = 4_000_000


@dataclass(frozen=True)
class Fitted:
    encoders: dict[str, Encoded]
    profile: dict[str, dict[str, Any]]
    """Of the training split's raw columns, fit for JSON."""
    rows: dict[int, int]
    """By the index of the split, all splits named."""


def raw_schema(rows: DataFrame) -> pa.Schema:
    """The query's columns as Arrow has them in Spark's tasks, and in the served model."""
    fields = [field for field in rows.schema.fields if field.name not in INTERNAL]
    timezone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    return to_arrow_schema(type(rows.schema)(fields), timezone=timezone)


def fit(rows: DataFrame, dataset: Dataset) -> Fitted:
    """Fit on the rows whose SPLIT is TRAIN. Raises ConfigError where they teach an encoder nothing."""
    schema = raw_schema(rows)
    # Moments of every number cost little, and a profile without them says little.
    wanted = {column: needed | ({MOMENTS} if is_number(schema.field(column).type) else set()) for column, needed in needs(dataset).items()}
    columns = [named(column) if needed else F.when(named(column).isNotNull(), True).alias(column) for column, needed in wanted.items()]
    gathered = rows.select(SPLIT, ROW, *columns).mapInArrow(partial(_gather, wanted), _GATHERED).persist()
    try:
        summaries = gathered.where("summary IS NOT NULL").select("column", "summary").collect()
        found = [(row.column, json.loads(row.summary)) for row in summaries]
        counted = _counts(gathered, dataset, wanted)
    finally:
        gathered.unpersist()
    statistics = {column: merge([summary for name, summary in found if name == column], counted.get(column)) for column in wanted}
    by_split = np.sum([np.zeros(len(SPLITS), np.int64), *(summary for name, summary in found if name is None)], axis=0)
    profile = {column: _profile(found) for column, found in statistics.items()}
    return Fitted(fit_encoders(dataset, statistics, schema), profile, dict(enumerate(by_split.tolist())))


def _gather(wanted: Needs, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    accumulators = {column: Accumulator(needed) for column, needed in wanted.items()}
    by_split = np.zeros(len(SPLITS), np.int64)
    undrained = 0
    for batch in batches:
        split = batch.column(SPLIT).to_numpy()
        by_split += np.bincount(split, minlength=len(SPLITS))
        train = batch.filter(pa.array(split == TRAIN))
        order = train.column(ROW).to_numpy().view(np.uint64)
        for column, accumulator in accumulators.items():
            accumulator.add(train.column(column), order)
        undrained += len(train)
        if undrained >= _ROWS_BETWEEN_DRAINS:
            yield from _drained(accumulators, wanted)
            undrained = 0
    yield from _drained(accumulators, wanted)
    texts = [json.dumps(by_split.tolist()), *(json.dumps(accumulator.summary()) for accumulator in accumulators.values())]
    nothing = pa.nulls(len(texts))
    yield _gathered(pa.array([None, *accumulators], pa.string()), nothing, nothing, pa.array(texts))


def _drained(accumulators: dict[str, Accumulator], wanted: Needs) -> Iterator[pa.RecordBatch]:
    for column, accumulator in accumulators.items():
        if COUNTS in wanted[column]:
            for batch in accumulator.drain().to_batches():
                yield _gathered(pa.repeat(column, len(batch)), *batch.columns, pa.nulls(len(batch)))


def _gathered(*columns: pa.Array) -> pa.RecordBatch:
    typed = [column.cast(field.type) for column, field in zip(columns, _GATHERED_ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(typed, schema=_GATHERED_ARROW)


def _counts(gathered: DataFrame, dataset: Dataset, wanted: Needs) -> dict[str, pa.Table]:
    """Each column's values and counts, the most frequent ones where there are more than anyone wants."""
    if not any(COUNTS in needed for needed in wanted.values()):
        return {}
    most = max([_DISTINCT, *(getattr(settings, "max_size", 0) for settings in dataset.encoders.values())])
    summed = gathered.where("value IS NOT NULL").groupBy("column", "value").agg(F.sum("count").alias("count"))
    rank = F.row_number().over(Window.partitionBy("column").orderBy(F.desc("count"), "value"))
    table = summed.withColumn("rank", rank).where(F.col("rank") <= most).select("column", "value", "count").toArrow()
    return {
        column: table.filter(pc.equal(table["column"], column)).select(["value", "count"]).cast(COUNTS_SCHEMA)
        for column, needed in wanted.items()
        if COUNTS in needed
    }


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

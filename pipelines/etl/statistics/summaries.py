"""The summaries that tasks give of their partitions, as JSON in rows of GATHERED, made one for each column."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pipelines.data.features.statistics import combine_summaries
from pipelines.etl.quality import REASON
from pipelines.etl.splits.splits import ALIKE, ROW, SPLIT
from pipelines.etl.statistics import leakage, row_sample, value_counts

# Tasks return the count of a value, a column's summary as JSON with the number of its counts, or the hashes of a bucket of keys.
GATHERED = "column string, value string, count bigint, summary string, hashes binary"
_NAMES = ["column", "value", "count", "summary", "hashes"]
VALUES = "__values"
"""The name of the summary of `value_counts`, which is of all columns."""
MISSING = "__missing"
"""The name of the NULL and NaN by column."""
_COMBINERS: dict[str, Callable[[Any, Any], Any]] = {
    ROW: row_sample.merge_samples,
    ALIKE: leakage.combine_contents,
    VALUES: value_counts.combine_counts,
}
"""How other summaries than those of raw columns are combined, by name."""


def summary_batch(summaries: dict[str, Any], counted: dict[str, int]) -> pa.RecordBatch:
    """The row of each summary."""
    texts = [json.dumps(summary) for summary in summaries.values()]
    return _rows(pa.array(summaries), count=pa.array([counted[column] for column in summaries]), summary=pa.array(texts))


def count_batch(column: str, counts: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a column's (value, count)."""
    return _rows(pa.repeat(column, len(counts)), value=counts["value"], count=counts["count"])


def hash_batch(drained: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of (bucket, hashes)."""
    return _rows(drained["bucket"], hashes=drained["hashes"])


def _rows(columns: pa.Array, **arrays_by_name: pa.Array) -> pa.RecordBatch:
    kinds = {"value": pa.string(), "count": pa.int64(), "summary": pa.string(), "hashes": pa.binary()}
    arrays = [arrays_by_name[name] if name in arrays_by_name else pa.nulls(len(columns), kind) for name, kind in kinds.items()]
    return pa.RecordBatch.from_arrays([columns, *arrays], names=_NAMES)


def _combine(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the partitions' summaries of each column. A sample takes 2 MB, so they are merged one by one."""
    summaries: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for batch in batches:
        for column, count, text in zip(*(batch.column(name) for name in ("column", "count", "summary")), strict=True):
            name, summary = column.as_py(), json.loads(text.as_py())
            if name in summaries:
                summary = _combine_pair(name, summaries[name], summary)
            summaries[name], counts[name] = summary, counts.get(name, 0) + count.as_py()
    if summaries:
        yield summary_batch(summaries, counts)


def merge_summaries(results: pa.Table) -> dict[str, Any]:
    """Summaries by column, of few rows of GATHERED."""
    rows = results.filter(pc.is_valid(results["summary"]))
    return {row["column"]: json.loads(row["summary"]) for batch in _combine(iter(rows.to_batches())) for row in batch.to_pylist()}


def _combine_pair(name: str, first: Any, second: Any) -> Any:
    if name in (SPLIT, MISSING):
        return np.add(first, second).tolist()
    if name in _COMBINERS:
        return _COMBINERS[name](first, second)
    return Counter(first) + Counter(second) if name == REASON else combine_summaries([first, second])


def collect_summaries(gathered: DataFrame) -> tuple[dict[str, Any], int]:
    """Summaries by column, and the number of counts of all columns."""
    by_column = gathered.where("summary IS NOT NULL").repartition(gathered.sparkSession.sparkContext.defaultParallelism, "column")
    rows = by_column.mapInArrow(_combine, GATHERED).select("column", "summary", "count").collect()
    return {row.column: json.loads(row.summary) for row in rows}, sum(row["count"] for row in rows)

"""The summaries that tasks give of their partitions, as JSON in rows of GATHERED, made one for each column."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from pipelines.etl import alike, row_sample, value_counts
from pipelines.etl.placement import ALIKE, ROW, SPLIT
from pipelines.etl.quality import REASON
from pipelines.features.statistics import combine

# Tasks return the count of a value, or a column's summary as JSON with the number of its counts.
GATHERED = "column string, value string, count bigint, summary string"
VALUES = "__values"
"""The name of the summary of `value_counts`, which is of all columns."""
_COMBINED: dict[str, Callable[[Any, Any], Any]] = {ROW: row_sample.combined, ALIKE: alike.combined, VALUES: value_counts.combined}
"""How other summaries than those of raw columns are combined, by name."""


def summarised(summaries: dict[str, Any], counted: dict[str, int]) -> pa.RecordBatch:
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
        yield summarised(found, counted)


def _combined(name: str, one: Any, other: Any) -> Any:
    if name == SPLIT:
        return np.add(one, other).tolist()
    if name in _COMBINED:
        return _COMBINED[name](one, other)
    return Counter(one) + Counter(other) if name == REASON else combine([one, other])


def summaries_of(gathered: DataFrame) -> tuple[dict[str, Any], int]:
    """Summaries by column, and the number of counts of all columns."""
    by_column = gathered.where("summary IS NOT NULL").repartition(gathered.sparkSession.sparkContext.defaultParallelism, "column")
    rows = by_column.mapInArrow(_combine, GATHERED).select("column", "summary", "count").collect()
    return {row.column: json.loads(row.summary) for row in rows}, sum(row["count"] for row in rows)

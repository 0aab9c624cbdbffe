"""Python work that is not rows yet, on Spark's executors: files to read, to hash, to look into."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

Work = TypeVar("Work")


def distribute(
    spark: SparkSession, work: Sequence[Work], run: Callable[[Work], Iterator[pa.RecordBatch]], schema: str | StructType
) -> DataFrame:
    """What `run` yields for each piece of `work`, a task for each. `schema` is DDL, or Spark's own.

    `run` and `work` travel by pickle: functions of installed modules, and plain values.
    """

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from run(work[number])

    return spark.range(0, len(work), 1, max(len(work), 1)).mapInArrow(in_task, schema)

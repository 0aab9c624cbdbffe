"""Runs Python functions on Spark's executors: reading, hashing and checking files."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

Work = TypeVar("Work")
# Most bytes of merged small batches.
BATCH_BYTES, BATCHES = 4 * 2**20, 1_000


def distribute(
    spark: SparkSession, work: Sequence[Work], run: Callable[[Work], Iterator[pa.RecordBatch]], schema: str | StructType
) -> DataFrame:
    """The batches that `run` yields for each item of `work`, in a task for each. `schema` is DDL or a StructType.

    `run` and `work` travel by pickle: functions of installed modules, and plain values.
    """

    def run_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from merge_batches(run(work[number]))

    return spark.range(0, len(work), 1, max(len(work), 1)).mapInArrow(run_task, schema)


def merge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches: one costs Spark as much as many rows, and each small file makes one."""
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    for batch in batches:
        if pending and (pending_bytes + batch.nbytes > BATCH_BYTES or len(pending) == BATCHES):
            yield from pa.Table.from_batches(pending).combine_chunks().to_batches()
            pending, pending_bytes = [], 0
        pending.append(batch)
        pending_bytes += batch.nbytes
    if pending:
        yield from pa.Table.from_batches(pending).combine_chunks().to_batches()

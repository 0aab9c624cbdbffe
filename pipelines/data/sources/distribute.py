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

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from in_few_batches(run(work[number]))

    return spark.range(0, len(work), 1, max(len(work), 1)).mapInArrow(in_task, schema)


def in_few_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, since a batch costs Spark as much as many rows, and each small file makes one."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if held and (held_bytes + batch.nbytes > BATCH_BYTES or len(held) == BATCHES):
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, held_bytes = [], 0
        held.append(batch)
        held_bytes += batch.nbytes
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()

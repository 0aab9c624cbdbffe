"""Iceberg: the rows of one snapshot of a table, read in Spark's tasks."""

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.data.sources.base import NoIncrementError, RawTable, Rows, distribute
from pipelines.data.sources.files.files import OPEN_BYTES, TASK_BYTES
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.formats.iceberg.library import check_pyiceberg
from pipelines.formats.iceberg.settings import IcebergTable

if TYPE_CHECKING:
    from pipelines.formats.iceberg.manifests import Entry
    from pipelines.formats.iceberg.snapshot import TableSnapshot

log = logging.getLogger(__name__)


class Iceberg(RawTable[IcebergTable]):
    """The snapshot is chosen once: what a writer commits while ETL reads is not in it."""

    added: "tuple[Entry, ...] | None" = None
    """Of a table of the rows that came after an earlier snapshot: the data files that have them."""

    @cached_property
    def snapshot(self) -> "TableSnapshot":
        check_pyiceberg(f"source.tables.{self.name}")
        from pipelines.formats.iceberg.snapshot import choose_snapshot  # noqa: PLC0415, only who reads Iceberg has pyiceberg installed

        return choose_snapshot(self.settings)

    def empty(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], self.snapshot.ddl)

    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        return (SourceFile(self.snapshot.place.actual, self.snapshot.bytes, self.snapshot.checksum),)

    def rows(self, spark: SparkSession) -> Rows:
        from pipelines.formats.iceberg.data_files import cut_files  # noqa: PLC0415

        snapshot = self.snapshot
        for name, kind in snapshot.rounded_columns:
            log.warning(
                "source.tables.%s: column %s is %s; rounded down to microseconds, as Spark has no nanoseconds", self.name, name, kind
            )
        plan = snapshot.plan(self.added)
        least, most = TASK_BYTES
        total_bytes = sum(file.bytes + OPEN_BYTES for file in plan.files)
        task_bytes = max(least, min(total_bytes // (2 * spark.sparkContext.defaultParallelism), most))
        rows = distribute(spark, cut_files(plan.files, task_bytes), snapshot.reader(plan), snapshot.ddl)
        return Rows(rows, plan.remaining_records)

    def since(self, spark: SparkSession, earlier: Sequence[SourceFile]) -> "RawTable[Any] | None":
        from pipelines.formats.iceberg.increments import new_files  # noqa: PLC0415

        if len(earlier) != 1:
            raise NoIncrementError(f"{self.settings.place}: the earlier version was not made of a snapshot of Iceberg")
        added = new_files(self.snapshot, earlier[0].checksum)
        if not added:
            return None
        table = Iceberg(self.name, self.settings)
        table.snapshot, table.added = self.snapshot, added
        return table

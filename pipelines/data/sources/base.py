"""The interface of a raw table, independent of its format, and how it runs Python on Spark's executors: to read, hash and check files."""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipelines.config.plugins import import_class
from pipelines.config.source.source import Source
from pipelines.config.source.table_settings import FORMATS, TableSettings
from pipelines.data.sources.files.listing import Range
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.data.versions.source_files import collect_files
from pipelines.errors import ConfigError

Settings = TypeVar("Settings", bound=TableSettings)
Work = TypeVar("Work")
CLOSURE_BYTES = 2**20
"""Work up to this size travels with the function, whole to each task: a table of rows would take Spark longer."""
LOCAL_ROWS = "spark.sql.execution.arrow.localRelationThreshold"
# Most bytes of merged small batches.
BATCH_BYTES, BATCHES = 4 * 2**20, 1_000


@dataclass(frozen=True)
class Rows:
    """A table's rows, or its records with the faults found in them."""

    rows: DataFrame
    """The table's columns, and those of `parsed.ORIGIN` if there are `ranges`."""
    count: int | None = None
    """The number of rows, if it is known without reading them; otherwise Spark caches the rows when it first reads them."""
    ranges: Sequence[Range] = ()
    """Of text: the byte ranges that `parsed.RANGE` numbers."""


class NoIncrementError(Exception):
    """Says why the rows that came to a table cannot be read without the others. ETL then reads all rows."""


class RawTable(ABC, Generic[Settings]):
    """One of a pipeline's raw tables. ETL calls `state`, `empty`, `identity` and `rows`, and then `state` again."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings

    @abstractmethod
    def empty(self, spark: SparkSession) -> DataFrame:
        """The table's columns, for the analysis of the query, which takes no rows of it. Raises ConfigError for wrong settings."""

    @abstractmethod
    def identity(self, spark: SparkSession) -> Sequence[SourceFile]:
        """Identifies the rows: files with their checksums, or a snapshot with its ID as the checksum. Raises SourceError if there is
        nothing to read."""

    @abstractmethod
    def rows(self, spark: SparkSession) -> Rows:
        """The rows that `identity` identifies. Raises SourceError if they cannot be read."""

    def since(self, spark: SparkSession, earlier: Sequence[SourceFile]) -> "RawTable[Any] | None":
        """A table of the rows that came after `earlier`, the identity of this table when a version was made; None if none came. Raises
        NoIncrementError if rows that `earlier` identifies may be gone or altered, or if the table cannot tell, as by default."""
        raise NoIncrementError(f"a table of format {self.settings.format} does not tell which rows are new")

    def state(self) -> Sequence[SourceFile]:
        """A cheap fingerprint, computed before and after reading, that differs if the rows have changed in between. Empty by default,
        since a snapshot cannot change."""
        return ()

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        """The part of the identity, `files`, that names a version: all that rows can contain. `statements` are query and expectations."""
        yield from collect_files(files).checksums_in_order()

    def notes(self) -> Iterator[str]:
        """Lines for the manifest about the rows that were read. None by default."""
        return iter(())

    def reader_failed(self, error: Exception) -> bool:
        """Whether this format's reader raised Spark's error, judged by the stack trace."""
        return False

    def damage(self, spark: SparkSession) -> str:
        """The first damaged file and its fault, in clearer words than Spark's error. Empty if there is none, and by default."""
        return ""

    def would_hold(self, place: str) -> bool:
        """Whether a new file at `place`, an absolute path of this machine, would become part of the table."""
        return False


RawTables = dict[str, RawTable[Any]]
"""By name."""


def raw_tables(source: Source) -> RawTables:
    """The config's tables, not read yet. Raises ConfigError if the class of one cannot be imported."""
    tables: RawTables = {}
    for name, settings in source.tables.items():
        built_in = FORMATS.get(settings.format)
        path = built_in.implementation if built_in else settings.implementation
        try:
            tables[name] = import_class(path, RawTable, "a raw table")(name, settings)  # type: ignore[type-abstract]
        except ValueError as error:
            raise ConfigError(f"source.tables.{name}.format: {error}") from error
    return tables


def distribute(
    spark: SparkSession, work: Sequence[Work], run: Callable[[Work], Iterator[pa.RecordBatch]], schema: str | StructType
) -> DataFrame:
    """The batches that `run` yields for each item of `work`, in a task for each. `schema` is DDL or a StructType. `run` and `work` travel
    by pickle: functions of installed modules, and plain values. Much work travels as rows, so that each task receives its own item alone:
    of ten million files, it would otherwise receive all."""
    items = [pickle.dumps(item) for item in work]
    if sum(map(len, items)) <= CLOSURE_BYTES:

        def run_numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from merge_batches(run(work[number]))

        return spark.range(0, len(work), 1, max(len(work), 1)).mapInArrow(run_numbered, schema)

    def run_pickled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for item in batch.column(0).to_pylist():
                yield from merge_batches(run(pickle.loads(item)))

    rows = pa.Table.from_batches([pa.record_batch([pa.array([item], pa.binary())], ["item"]) for item in items])
    with restored_setting(spark, LOCAL_ROWS, "0"):  # or Spark would share few bytes among its cores, whatever the batches
        return spark.createDataFrame(rows).mapInArrow(run_pickled, schema)


@contextmanager
def restored_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set a setting of the session that has a default, until the block ends."""
    earlier = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)
        if spark.conf.get(name) != earlier:  # an unchanged default must stay one
            spark.conf.set(name, str(earlier))


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

"""What ETL asks of a raw table, whatever it is read from."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyspark.sql import DataFrame, SparkSession

from pipelines.config.source import TableSettings
from pipelines.dataset.sources import SourceFile
from pipelines.sources.files import Range

Settings = TypeVar("Settings", bound=TableSettings)


@dataclass(frozen=True)
class Rows:
    """A table's rows, or its records with what is wrong with them."""

    rows: DataFrame
    """The table's columns, and those of `parsed.ORIGIN` if there are `ranges`."""
    count: int | None = None
    """Rows, if they are known without reading them; else the rows are kept in Spark's cache when they are first read."""
    ranges: tuple[Range, ...] = ()
    """Of text: what the numbers in `parsed.RANGE` stand for."""


class RawTable(ABC, Generic[Settings]):
    """One of a pipeline's raw tables. ETL asks for its state, for `empty`, its identity and its rows, and for its state again."""

    def __init__(self, name: str, settings: Settings) -> None:
        self.name = name
        self.settings = settings

    @abstractmethod
    def empty(self, spark: SparkSession) -> DataFrame:
        """The table's columns, for the analysis of the query: no row of it is read. Raises ConfigError for wrong settings."""

    @abstractmethod
    def identity(self, spark: SparkSession) -> tuple[SourceFile, ...]:
        """What decides the rows: files with their checksums, or a snapshot with its id in the checksum's place.

        Raises SourceError if there is nothing to read.
        """

    @abstractmethod
    def rows(self, spark: SparkSession) -> Rows:
        """The rows that `identity` stands for. Raises SourceError if they cannot be read."""

    def state(self) -> tuple[SourceFile, ...]:
        """What is cheap to ask before and after rows are read, and differs if they have changed in between. By default
        nothing: an identity that is a snapshot's cannot change."""
        return ()

    def named_by(self, found: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
        """What of the identity `found` names a version: all that rows can hold. `statements` are the query and expectations."""
        yield from sorted(file.checksum for file in found)

    def would_hold(self, place: str) -> bool:
        """Whether a file that came to be at `place`, an absolute path of this machine, would be part of the table."""
        return False

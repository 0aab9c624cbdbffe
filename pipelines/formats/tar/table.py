"""The files inside a tar archive, read sequentially without unpacking it.

An archive may be compressed according to its extension: `.tar.gz`. Folders and links are skipped.
"""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipelines.config.source.source import Table
from pipelines.data.sources.base import Rows
from pipelines.data.sources.files.content import content
from pipelines.data.sources.files.file_table import FileTable
from pipelines.errors import ConfigError, SourceError
from pipelines.runtime.compat.python import forget_members

BATCH_BYTES = 4 * 2**20
MEMBER_BYTES = 2**30
"""Larger files inside an archive are refused, since a header may declare any size."""


class Tar(FileTable[Table]):
    def empty(self, spark: SparkSession) -> DataFrame:
        self._check_schema()
        return spark.createDataFrame([], TarSource({}).schema())

    def rows(self, spark: SparkSession) -> Rows:
        self._check_schema()
        spark.dataSource.register(TarSource)
        return Rows(spark.read.format("tar").option("paths", json.dumps([file.path for file in self.files])).load())

    def _check_schema(self) -> None:
        if self.settings.ddl:
            raise ConfigError(f"source.tables.{self.name}.schema: tar has the columns path and content; leave the schema out")


class TarSource(DataSource):
    """The files inside tar archives, a task for each archive: `path` within it, and `content`."""

    @classmethod
    def name(cls) -> str:
        return "tar"

    def schema(self) -> str:
        return "path string, content binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        return TarReader(json.loads(self.options["paths"]), schema)


@dataclass
class TarReader(DataSourceReader):
    paths: list[str]
    columns: StructType

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(path) for path in self.paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_members(partition.value, to_arrow_schema(self.columns))


def read_members(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of the schema's columns, of `path` (the file's name in the archive) and `content`.

    Raises SourceError if the file is no tar archive, is cut, or has a damaged header. Archives that follow each other are read as one.
    """
    names: list[str] = []
    contents: list[bytes] = []
    pending_bytes = 0
    try:
        with content(path) as stream, tarfile.open(fileobj=stream, mode="r|", ignore_zeros=True, tarinfo=_strict_header()) as archive:
            for member in archive:
                forget_members(archive)
                if not member.isreg():
                    continue
                if member.size > MEMBER_BYTES:
                    raise SourceError(
                        f"{path}: {member.name} has {member.size:,} bytes; a file in an archive may have {MEMBER_BYTES:,}: "
                        "read it unpacked, as binaryFile"
                    )
                file = archive.extractfile(member)
                assert file is not None, "a regular file has content"
                names.append(member.name)
                contents.append(file.read())
                pending_bytes += len(names[-1]) + len(contents[-1])
                if pending_bytes >= BATCH_BYTES:
                    yield _batch(names, contents, schema)
                    names, contents, pending_bytes = [], [], 0
    except (tarfile.TarError, EOFError) as error:
        raise SourceError(f"{path} is not a whole tar archive: {error}; get the file again") from error
    if names:
        yield _batch(names, contents, schema)


def _strict_header() -> type[tarfile.TarInfo]:
    """The class of the headers of one archive. They raise ReadError where `tarfile` takes a damaged header, or none at all, for the end,
    and would lose the files behind it. Blocks of zeros are the end."""

    class StrictHeader(tarfile.TarInfo):
        is_after_end = False

        @classmethod
        def frombuf(cls, buf: Any, encoding: str, errors: str) -> Any:
            try:
                header = super().frombuf(buf, encoding, errors)
            except tarfile.HeaderError as error:
                if any(buf) or not (buf or cls.is_after_end):
                    raise tarfile.ReadError(str(error) if buf else "it has no end") from error
                cls.is_after_end = True
                raise
            cls.is_after_end = False
            return header

    return StrictHeader


def _batch(names: list[str], contents: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    columns = {"path": pa.array(names), "content": pa.array(contents, pa.binary())}
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)

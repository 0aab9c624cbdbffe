"""IDX files as a table: joined by row number, a column for each file."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipelines.config.messages.words import name_list
from pipelines.config.source.source import Table
from pipelines.data.sources.base import Rows
from pipelines.data.sources.files import files
from pipelines.data.sources.files.file_table import FileTable
from pipelines.data.sources.text.parsed import parse_schema
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.errors import SourceError
from pipelines.formats.idx.idx_format import read_header, read_rows

BATCH_BYTES = 4 * 2**20
ROW = "row"
"""The name of the column with row numbers."""


class Idx(FileTable[Table]):
    """The files joined by row number, one column each."""

    @property
    def paths(self) -> list[str]:
        """In the config's order, which is the columns'."""
        return [file.path for path in self.settings.paths for file in files.find(path)]

    def empty(self, spark: SparkSession) -> DataFrame:
        columns = parse_schema(self.name, self.settings.ddl) if self.settings.ddl else IdxSource({"paths": json.dumps(self.paths)}).schema()
        return spark.createDataFrame([], columns)

    def rows(self, spark: SparkSession) -> Rows:
        spark.dataSource.register(IdxSource)
        reader = spark.read.format("idx").option("paths", json.dumps(self.paths))
        return Rows((reader.schema(self.settings.ddl) if self.settings.ddl else reader).load())

    def identity_lines(self, files: Sequence[SourceFile], statements: Collection[str]) -> Iterator[str]:
        checksum_of = {file.path: file.checksum for file in files}
        yield from (checksum_of[path] for path in self.paths)


class IdxSource(DataSource):
    """MNIST's files joined by row number: a column for each path, in the schema's order, and row numbers if a column is named `row`."""

    @classmethod
    def name(cls) -> str:
        return "idx"

    def schema(self) -> str:
        return "image binary, label int" if len(json.loads(self.options["paths"])) == 2 else "value binary"

    def reader(self, schema: StructType) -> DataSourceReader:
        paths = json.loads(self.options["paths"])
        columns = [name for name in schema.names if name != ROW]
        if len(paths) != len(columns):
            raise SourceError(
                f"an idx table has a column for each file: {len(paths)} files, and the columns {name_list(columns)}; give as "
                "many columns as files"
            )
        return IdxReader(paths, schema)


@dataclass
class IdxReader(DataSourceReader):
    paths: list[str]
    columns: StructType

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_columns(self.paths, to_arrow_schema(self.columns))


def read_columns(paths: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The files joined by row number, one column each in the order of the schema; a column with the name ROW numbers rows from 0.

    Raises SourceError if the files have different numbers of rows, or a column's type does not fit its file.
    """
    headers = [read_header(path) for path in paths]
    if len({header.shape[0] for header in headers}) > 1:
        sizes = ", ".join(f"{path} has {header.shape[0]:,}" for path, header in zip(paths, headers, strict=True))
        raise SourceError(f"idx files of one table must have as many rows as each other: {sizes}; give files of the same rows")
    rows_per_batch = max(1, BATCH_BYTES // max(sum(header.row_bytes for header in headers), 1))
    fields = [field for field in schema if field.name != ROW]
    first = 0
    for arrays in zip(*[read_rows(path, rows_per_batch) for path in paths], strict=True):
        columns = {field.name: _cast(array, field, path) for array, field, path in zip(arrays, fields, paths, strict=True)}
        columns[ROW] = pa.array(np.arange(first, first + len(arrays[0])))
        first += len(arrays[0])
        yield pa.record_batch([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _cast(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if pa.types.is_binary(array.type) != pa.types.is_binary(field.type):
        raise SourceError(
            f"{path} holds {array.type} per row, and its column {field.name} is {field.type}; one dimension makes numbers, more make binary"
        )
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SourceError(f"{path} does not fit its column {field.name}: {error}; choose a wider type") from error

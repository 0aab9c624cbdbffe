"""IDX, the format of MNIST's files: two zero bytes, a type, a number of dimensions, their sizes, the values.

All numbers are big-endian; the first dimension counts rows. http://yann.lecun.com/exdb/mnist describes it.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipelines.config.did_you_mean import name_list
from pipelines.config.source import Table
from pipelines.data.sources import files
from pipelines.data.sources.base import Rows
from pipelines.data.sources.content import content
from pipelines.data.sources.file_table import FileTable
from pipelines.data.sources.parsed import parse_schema
from pipelines.data.versions.sources import SourceFile
from pipelines.errors import SourceError

BATCH_BYTES = 4 * 2**20
_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
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

    def identity_lines(self, files: tuple[SourceFile, ...], statements: Collection[str]) -> Iterator[str]:
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
        return read_columns(self.paths, to_arrow_schema(self.columns), ROW)


@dataclass(frozen=True)
class Header:
    dtype: np.dtype
    shape: tuple[int, ...]
    """Rows first."""

    @property
    def bytes(self) -> int:
        """Of the header itself."""
        return 4 + 4 * len(self.shape)

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape[1:])


def read_header(path: str) -> Header:
    """Raises SourceError if the file has no IDX header."""
    with content(path) as stream:
        return _header(stream, path)


def read_rows(path: str, rows_per_batch: int) -> Iterator[pa.Array]:
    """A file's rows: numbers if it has one dimension, else the bytes of each row's values.

    Raises SourceError if the file ends before its last row, or continues after it.
    """
    with content(path) as stream:
        header = _header(stream, path)
        for first in range(0, header.shape[0], rows_per_batch):
            rows = min(rows_per_batch, header.shape[0] - first)
            values = _exactly(stream, rows * header.row_bytes)
            if len(values) < rows * header.row_bytes:
                have = first + len(values) // max(header.row_bytes, 1)
                raise SourceError(
                    f"{path} is truncated: its header promises {header.shape[0]:,} rows, {have:,} are there; get the file again"
                )
            yield _array(header, values, rows)
        if stream.read(1):
            raise SourceError(f"{path} goes on after the {header.shape[0]:,} rows that its header promises; get the file again")


def read_columns(paths: list[str], schema: pa.Schema, row: str) -> Iterator[pa.RecordBatch]:
    """The files joined by row number, one column each in the order of the schema; a column named `row` numbers rows from 0.

    Raises SourceError if the files have different numbers of rows, or a column's type does not fit its file.
    """
    headers = [read_header(path) for path in paths]
    if len({header.shape[0] for header in headers}) > 1:
        sizes = ", ".join(f"{path} has {header.shape[0]:,}" for path, header in zip(paths, headers, strict=True))
        raise SourceError(f"idx files of one table must have as many rows as each other: {sizes}; give files of the same rows")
    rows_per_batch = max(1, BATCH_BYTES // max(sum(header.row_bytes for header in headers), 1))
    fields = [field for field in schema if field.name != row]
    first = 0
    for arrays in zip(*[read_rows(path, rows_per_batch) for path in paths], strict=True):
        columns = {field.name: _cast(array, field, path) for array, field, path in zip(arrays, fields, paths, strict=True)}
        columns[row] = pa.array(np.arange(first, first + len(arrays[0])))
        first += len(arrays[0])
        yield pa.record_batch([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _header(stream: pa.NativeFile, path: str) -> Header:
    start = _exactly(stream, 4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _DTYPES or not start[3]:
        raise SourceError(
            f"{path} is not an IDX file: it begins with {start.hex(' ') or 'nothing'}; IDX begins with 00 00, a type 08 to 0e, dimensions"
        )
    sizes = _exactly(stream, 4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise SourceError(f"{path} is truncated: {start[3]} dimensions are promised, and the file ends before their sizes; get it again")
    return Header(np.dtype(_DTYPES[start[2]]), tuple(np.frombuffer(sizes, ">u4").tolist()))


def _exactly(stream: pa.NativeFile, size: int) -> bytes:
    """`size` bytes, or fewer at the end: a decompressing stream may return them in several reads."""
    pieces = []
    while size > 0 and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _array(header: Header, values: bytes, rows: int) -> pa.Array:
    if len(header.shape) == 1:
        return pa.array(np.frombuffer(values, header.dtype).astype(header.dtype.newbyteorder("=")))
    offsets = np.arange(rows + 1, dtype=np.int32) * header.row_bytes
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _cast(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if pa.types.is_binary(array.type) != pa.types.is_binary(field.type):
        raise SourceError(
            f"{path} holds {array.type} per row, and its column {field.name} is {field.type}; one dimension makes numbers, more make binary"
        )
    try:
        return array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SourceError(f"{path} does not fit its column {field.name}: {error}; choose a wider type") from error

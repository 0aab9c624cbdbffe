"""Packs of whole or small files on the executors' disks: each file is opened once, for its checksum and its content.

Opening a small file costs more than reading it, and every pass over the rows would open all of them again. The packs
are on disks, not in memory, since a folder of images or recordings may have any size. Text in large files is not packed,
since reading it twice is cheaper than writing it; nor is Parquet, where a pass reads only the columns that it needs.

A pack has the files' `path` and `content`, and CHECKSUM. The first pass over it reads them.
"""

from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.data.sources.base import distribute
from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.data.sources.files.files import OPEN_BYTES, TASK_BYTES, File, ranges, task_bytes
from pipelines.data.versions.raw_inputs import SourceFile

NUMBER, CHECKSUM = "_number", "_checksum"
_SCHEMA = pa.schema({NUMBER: pa.int32(), "path": pa.string(), "content": pa.binary(), CHECKSUM: pa.string()})
MANY = 64
"""Packing pays off from this number of small files."""


def is_worthwhile(files: list[File]) -> bool:
    """Whether there are many files, opening them costs more than reading them, and each is small enough for a row."""
    sizes = [file.bytes for file in files]
    return len(sizes) >= MANY and sum(sizes) < len(sizes) * OPEN_BYTES and max(sizes) <= TASK_BYTES[1]


def pack_rows(rows: DataFrame) -> DataFrame:
    """Pack the rows of Spark's binaryFile."""
    checksum = F.concat(F.lit("sha256:"), F.sha2("content", 256))
    return rows.withColumn(CHECKSUM, checksum).persist(StorageLevel.DISK_ONLY)


def pack_files(spark: SparkSession, files: list[File]) -> DataFrame:
    """Pack the files; NUMBER is the index of each in `files`."""
    numbers = iter(range(len(files)))
    tasks = ranges(files, task_bytes(files, spark.sparkContext.defaultParallelism), split=False)
    work = [[(next(numbers), task_range.file.path) for task_range in task] for task in tasks]
    rows = distribute(spark, work, _read_files, f"{NUMBER} int, path string, content binary, {CHECKSUM} string")
    return rows.persist(StorageLevel.DISK_ONLY)


def file_checksums(pack: DataFrame) -> tuple[SourceFile, ...]:
    """Every file of a pack by path, with the SHA-256 of its bytes."""
    rows = pack.select("path", F.octet_length("content"), CHECKSUM).toArrow()
    files = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return tuple(sorted({SourceFile(path.removeprefix("file:"), size, checksum) for path, size, checksum in files}))


def _read_files(numbered: list[tuple[int, str]]) -> Iterator[pa.RecordBatch]:
    for number, path in numbered:
        with file_errors(path), open_file(path) as stream:
            content = stream.read()
        values = (number, path, content, f"sha256:{sha256(content).hexdigest()}")
        yield pa.record_batch([pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)], schema=_SCHEMA)

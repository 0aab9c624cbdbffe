"""Size and checksum of files."""

from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.data.sources import files
from pipelines.data.sources.content import BLOCK_BYTES, file_errors, open_file
from pipelines.data.sources.distribute import distribute
from pipelines.data.sources.files import File
from pipelines.data.versions.sources import SourceFile

_SCHEMA = pa.schema({"path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})


def checksums(spark: SparkSession, found: list[File]) -> tuple[SourceFile, ...]:
    """Every file by path, with the SHA-256 of its bytes, computed in Spark's tasks. Raises SourceError if one cannot be read."""
    task_bytes = files.task_bytes(found, spark.sparkContext.defaultParallelism)
    work = [[piece.file for piece in pieces] for pieces in files.ranges(found, task_bytes, split=False)]
    rows = distribute(spark, work, _hashed, "path string, bytes long, checksum string").collect()
    return tuple(sorted((SourceFile(**row.asDict()) for row in rows), key=lambda file: file.path))


def stats(found: list[File]) -> tuple[SourceFile, ...]:
    """Every file by path, with only size and modification time: cheap, and enough to detect that a file was written to."""
    marks = [sha256(f"{file.bytes} {file.modified}".encode()).hexdigest() for file in found]
    return tuple(SourceFile(path=file.path, bytes=file.bytes, checksum=f"stat:{mark}") for file, mark in zip(found, marks, strict=True))


def _hashed(found: list[File]) -> Iterator[pa.RecordBatch]:
    for file in found:
        digest, size = sha256(), 0
        with file_errors(file.path), open_file(file.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        yield pa.RecordBatch.from_pylist([{"path": file.path, "bytes": size, "checksum": f"sha256:{digest.hexdigest()}"}], schema=_SCHEMA)

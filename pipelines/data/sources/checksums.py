"""Size and checksum of files."""

from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.data.sources.content import BLOCK_BYTES, file_errors, open_file
from pipelines.data.sources.distribute import distribute
from pipelines.data.sources.files import File, ranges, task_bytes
from pipelines.data.versions.sources import SourceFile

_SCHEMA = pa.schema({"path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})


def checksums(spark: SparkSession, files: list[File]) -> tuple[SourceFile, ...]:
    """Every file by path, with the SHA-256 of its bytes, computed in Spark's tasks. Raises SourceError if one cannot be read."""
    tasks = ranges(files, task_bytes(files, spark.sparkContext.defaultParallelism), split=False)
    work = [[task_range.file for task_range in task] for task in tasks]
    rows = distribute(spark, work, _hash_files, "path string, bytes long, checksum string").collect()
    return tuple(sorted((SourceFile(**row.asDict()) for row in rows), key=lambda file: file.path))


def stats(files: list[File]) -> tuple[SourceFile, ...]:
    """Every file by path, with only size and modification time: cheap, and enough to detect that a file was written to."""
    marks = [sha256(f"{file.bytes} {file.modified}".encode()).hexdigest() for file in files]
    return tuple(SourceFile(path=file.path, bytes=file.bytes, checksum=f"stat:{mark}") for file, mark in zip(files, marks, strict=True))


def _hash_files(files: list[File]) -> Iterator[pa.RecordBatch]:
    for file in files:
        digest, size = sha256(), 0
        with file_errors(file.path), open_file(file.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        yield pa.RecordBatch.from_pylist([{"path": file.path, "bytes": size, "checksum": f"sha256:{digest.hexdigest()}"}], schema=_SCHEMA)

"""What the raw tables were when they were read: every file's size and checksum."""

from collections.abc import Iterator
from hashlib import sha256

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.config.source import Table
from pipelines.dataset.sources import SourceFile, Sources
from pipelines.errors import SourceError
from pipelines.etl import files
from pipelines.etl.content import BLOCK_BYTES, naming, open_file
from pipelines.etl.distribute import distribute
from pipelines.etl.files import File
from pipelines.etl.pack import Pack, packed_files

_SCHEMA = pa.schema({"path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})


def checksums(spark: SparkSession, table: Table, pack: Pack | None = None) -> tuple[SourceFile, ...]:
    """Every file of a table by path, with the SHA-256 of its bytes, taken in Spark's tasks, or in its pack; or with
    `checksum: stat` of its size and time of change. Raises SourceError if a path leads to no file, or one cannot be read."""
    if table.checksum == "stat":
        return stats(table)
    if pack is not None:
        return packed_files(pack)
    found = files.find(table.path)
    task_bytes = files.task_bytes(found, spark.sparkContext.defaultParallelism)
    work = [[piece.file for piece in pieces] for pieces in files.ranges(found, task_bytes, split=False)]
    rows = distribute(spark, work, _hashed, "path string, bytes long, checksum string").collect()
    return tuple(sorted((SourceFile(**row.asDict()) for row in rows), key=lambda file: file.path))


def stats(table: Table) -> tuple[SourceFile, ...]:
    """Every file of a table by path, size and time of change alone: cheap, and enough to notice that one was written to."""
    found = files.find(table.path)
    marks = [sha256(f"{file.bytes} {file.modified}".encode()).hexdigest() for file in found]
    return tuple(SourceFile(path=file.path, bytes=file.bytes, checksum=f"stat:{mark}") for file, mark in zip(found, marks, strict=True))


def check_unchanged(tables: dict[str, Table], before: Sources) -> None:
    """Raises SourceError if a file is not as it was when `before` was taken with `stats`: rows may be of either state."""
    for name, table in tables.items():
        if changed := sorted({file.path for file in set(before[name]) ^ set(stats(table))}):
            raise SourceError(f"source.tables.{name}: {', '.join(changed[:5])} changed while being read; run again once it is whole")


def _hashed(found: list[File]) -> Iterator[pa.RecordBatch]:
    for file in found:
        digest, size = sha256(), 0
        with naming(file.path), open_file(file.path) as stream:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        yield pa.RecordBatch.from_pylist([{"path": file.path, "bytes": size, "checksum": f"sha256:{digest.hexdigest()}"}], schema=_SCHEMA)

"""Checks the footers of Parquet files before Spark reads them: it decompresses any size that a page declares, so that a file of 4 KB
can demand 2 GiB, and skips row groups that lie outside the file.
"""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.data.sources.base import distribute
from pipelines.data.sources.files.content import file_errors, open_file
from pipelines.errors import SourceError

FILES_PER_TASK = 64
# The best codecs stay far below on real columns; dictionaries and run lengths do not count as compression here.
CHUNK_BYTES, COMPRESSION = 256 * 2**20, 1000
_READER = re.compile(r"org\.apache\.parquet|datasources\.parquet")
"""Packages of Spark's Parquet reader, in a Java stack trace."""


def check_rows(spark: SparkSession, rows: DataFrame) -> int:
    """The number of rows in the files of `rows`.

    Raises SourceError naming the file if one is no Parquet file, would decompress to too many bytes, or hides row groups from Spark.
    """
    names = sorted(rows.inputFiles())
    work = [names[start : start + FILES_PER_TASK] for start in range(0, len(names), FILES_PER_TASK)]
    files = distribute(spark, work, _row_counts, "path string, rows long").collect()
    promised = sum(file.rows for file in files)
    if rows.count() != promised:
        _raise_hidden(rows, {file.path: file.rows for file in files})
    return promised


def reader_failed(error: Exception) -> bool:
    """Whether the stack trace of Spark's error shows its Parquet reader."""
    return _READER.search(str(error)) is not None


def damage(spark: SparkSession, names: list[str]) -> str:
    """Arrow's message for the first of these Parquet files that it cannot decode; empty if it can decode all.

    Spark's reader trusts a file, and fails on a damaged one with an arbitrary Java exception.
    """
    work = [names[start : start + FILES_PER_TASK] for start in range(0, len(names), FILES_PER_TASK)]
    problems = distribute(spark, work, _find_damage, "problem string").collect()
    return min((row.problem for row in problems), default="")


def _find_damage(paths: list[str]) -> Iterator[pa.RecordBatch]:
    """The problems of the files that cannot be decoded."""
    problems = []
    for path in paths:
        try:
            with file_errors(path), open_file(path) as stream:
                for _ in pq.ParquetFile(stream, page_checksum_verification=True).iter_batches():
                    pass
        except SourceError as error:
            problems.append(str(error))
    yield pa.RecordBatch.from_pydict({"problem": pa.array(problems, pa.string())})


def _raise_hidden(rows: DataFrame, promised: dict[str, int]) -> NoReturn:
    """Name the file with a row group that Spark skips, since its offset in the footer lies outside the file."""
    counts = {row.path: row["count"] for row in rows.groupBy(F.col("_metadata.file_path").alias("path")).count().collect()}
    path = next(path for path in promised if counts.get(path, 0) != promised[path])
    raise SourceError(
        f"{path} promises {promised[path]:,} rows, and Spark finds {counts.get(path, 0):,}: its footer is corrupt; write the file again"
    )


def _row_counts(paths: list[str]) -> Iterator[pa.RecordBatch]:
    """One batch of (path, rows)."""
    files = [_check_file(path) for path in paths]
    yield pa.RecordBatch.from_pylist(files, schema=pa.schema({"path": pa.string(), "rows": pa.int64()}))


def _check_file(path: str) -> dict[str, Any]:
    with file_errors(path), open_file(path) as stream:
        file = pq.ParquetFile(stream, page_checksum_verification=True)
        footer = file.metadata
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for group in groups:
            _check_size(path, group)
        leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
        # Spark does not check repetition levels, and makes wrong lists of corrupt ones; Arrow checks them.
        for _ in file.iter_batches(columns=[leaf.path for leaf in leaves if leaf.max_repetition_level]):
            pass
    return {"path": path, "rows": sum(group.num_rows for group in groups)}


def _check_size(path: str, group: pq.RowGroupMetaData) -> None:
    for number in range(group.num_columns):
        chunk = group.column(number)
        stored, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
        if unpacked > CHUNK_BYTES and unpacked > COMPRESSION * stored:
            raise SourceError(
                f"{path}: column {chunk.path_in_schema} asks for {unpacked:,} bytes of memory out of {stored:,} in the file; "
                "if it is to be trusted, write it again in smaller row groups"
            )

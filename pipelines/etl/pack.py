"""Tables of whole files and of many small ones: each file is read once, its checksum taken on the way, and packed on the
executors' disks.

A small file costs by being opened, not by its bytes, and every pass over the rows would open all of them again. The packs
lie on disks and not in memory, for a folder of pictures or recordings may be of any size. Text in large files is not packed,
since reading it twice is cheaper than to write it in between; nor is Parquet, of which a pass reads only the columns that
it needs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.compat.spark import count_input_files
from pipelines.config.options import spark_options
from pipelines.config.source import Source, Table
from pipelines.dataset.sources import SourceFile
from pipelines.errors import SourceError
from pipelines.etl import files
from pipelines.etl.content import naming, open_file
from pipelines.etl.distribute import distribute
from pipelines.etl.faults import table_errors
from pipelines.etl.files import OPEN_BYTES, TASK_BYTES, File

NUMBER, CHECKSUM = "_number", "_checksum"
TEXT_FORMATS = ("csv", "json", "text")
_SCHEMA = pa.schema({NUMBER: pa.int32(), "path": pa.string(), "content": pa.binary(), CHECKSUM: pa.string()})
MANY = 64
"""So many small text files are packed; of fewer, none is worth it."""


@dataclass(frozen=True)
class Pack:
    """A table's files, `path` and `content` with CHECKSUM."""

    rows: DataFrame
    """With the other columns of Spark's binaryFile and those of Hive's folders; of text with the file's NUMBER."""
    files: tuple[File, ...] = ()
    """Of text: what NUMBER counts."""


Packs = dict[str, Pack]
"""By table."""


def packs(spark: SparkSession, source: Source) -> Packs:
    """The tables of whole files and of many small ones, found but not read yet: the first pass over one packs it.

    Raises SourceError naming table and path if there are no files, or some that Spark would pass over.
    """
    found = {}
    for name, table in source.tables.items():
        with table_errors(name, table.path):
            if table.format == "binaryFile":
                found[name] = _whole(spark, table)
            elif table.format in TEXT_FORMATS and table.checksum == "sha256" and small(listed := files.find(table.path)):
                found[name] = _text(spark, tuple(listed))
    return found


def packed_files(pack: Pack) -> tuple[SourceFile, ...]:
    """Every file of a pack by path, with the SHA-256 of its bytes."""
    rows = pack.rows.select("path", F.octet_length("content"), CHECKSUM).toArrow()
    paths, sizes, checksums = (column.to_pylist() for column in rows.columns)
    return tuple(sorted({SourceFile(path.removeprefix("file:"), *found) for path, *found in zip(paths, sizes, checksums, strict=True)}))


def check_listed(table: Table, rows: DataFrame) -> None:
    """Raises SourceError if Spark passes over files of the table that no option leaves out."""
    there, listed = len(files.find(table.path)), count_input_files(rows)
    if listed != there and not {"pathglobfilter", "modifiedbefore", "modifiedafter"} & spark_options(table.options).keys():
        raise SourceError(f"{table.path} holds {there} files, of which Spark reads {listed}; set options: {{recursiveFileLookup: true}}")


def small(found: list[File]) -> bool:
    """Whether the files are many, opening them costs more than reading them, and each is small enough for a row."""
    sizes = [file.bytes for file in found]
    return len(sizes) >= MANY and sum(sizes) < len(sizes) * OPEN_BYTES and max(sizes) <= TASK_BYTES[1]


def _whole(spark: SparkSession, table: Table) -> Pack:
    rows = spark.read.format("binaryFile").options(**spark_options(table.options)).load(list(table.paths))
    check_listed(table, rows)
    checksum = F.concat(F.lit("sha256:"), F.sha2("content", 256))
    return Pack(rows.withColumn(CHECKSUM, checksum).persist(StorageLevel.DISK_ONLY))


def _text(spark: SparkSession, found: tuple[File, ...]) -> Pack:
    task_bytes = files.task_bytes(list(found), spark.sparkContext.defaultParallelism)
    numbers = iter(range(len(found)))
    work = [[(next(numbers), piece.file.path) for piece in pieces] for pieces in files.ranges(list(found), task_bytes, split=False)]
    rows = distribute(spark, work, _packed, f"{NUMBER} int, path string, content binary, {CHECKSUM} string")
    return Pack(rows.persist(StorageLevel.DISK_ONLY), found)


def _packed(numbered: list[tuple[int, str]]) -> Iterator[pa.RecordBatch]:
    for number, path in numbered:
        with naming(path), open_file(path) as stream:
            content = stream.read()
        values = (number, path, content, f"sha256:{sha256(content).hexdigest()}")
        yield pa.record_batch([pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)], schema=_SCHEMA)

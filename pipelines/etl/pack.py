"""Tables of whole files: each is read once, its checksum taken on the way, and packed on the executors' disks.

A small file costs by being opened, not by its bytes, and every pass over the rows would open all of them again. The packs
lie on disks and not in memory, for a folder of pictures or recordings may be of any size; Parquet is not packed, since a
pass reads only the columns that it needs.
"""

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.compat.spark import count_input_files
from pipelines.config.options import spark_options
from pipelines.config.source import Source, Table
from pipelines.dataset.sources import SourceFile
from pipelines.errors import SourceError
from pipelines.etl import files
from pipelines.etl.faults import table_errors

Packs = dict[str, DataFrame]
"""By table: the columns of Spark's binaryFile, those of Hive's folders, and CHECKSUM."""

CHECKSUM = "_checksum"


def packs(spark: SparkSession, source: Source) -> Packs:
    """The tables of whole files, found but not read yet: the first pass over one packs it.

    Raises SourceError naming table and path if there are no files, or some that Spark would pass over.
    """
    found = {}
    for name, table in source.tables.items():
        if table.format == "binaryFile":
            with table_errors(name, table.path):
                found[name] = _pack(spark, table)
    return found


def packed_files(pack: DataFrame) -> tuple[SourceFile, ...]:
    """Every file of a pack by path, with the SHA-256 of its bytes."""
    rows = pack.select("path", F.octet_length("content"), CHECKSUM).toArrow()
    paths, sizes, checksums = (column.to_pylist() for column in rows.columns)
    return tuple(sorted({SourceFile(path.removeprefix("file:"), *found) for path, *found in zip(paths, sizes, checksums, strict=True)}))


def check_listed(table: Table, rows: DataFrame) -> None:
    """Raises SourceError if Spark passes over files of the table that no option leaves out."""
    there, listed = len(files.find(table.path)), count_input_files(rows)
    if listed != there and not {"pathglobfilter", "modifiedbefore", "modifiedafter"} & spark_options(table.options).keys():
        raise SourceError(f"{table.path} holds {there} files, of which Spark reads {listed}; set options: {{recursiveFileLookup: true}}")


def _pack(spark: SparkSession, table: Table) -> DataFrame:
    rows = spark.read.format("binaryFile").options(**spark_options(table.options)).load(list(table.paths))
    check_listed(table, rows)
    checksum = F.concat(F.lit("sha256:"), F.sha2("content", 256))
    return rows.withColumn(CHECKSUM, checksum).persist(StorageLevel.DISK_ONLY)

"""Raw tables, parsed once, their bad records apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.source import Source, Table
from pipelines.errors import SourceError

CORRUPT = "_corrupt_record"


@dataclass(frozen=True)
class Tables:
    """The source's tables, registered as temporary views under their names."""

    parsed: dict[str, int]
    """Records by table, malformed ones included."""
    malformed: DataFrame | None
    """What is not a record of its table's schema: reason, record, source; None if there is nothing."""
    refused: dict[str, int]
    """Rows of `malformed` by reason."""
    persisted: tuple[DataFrame, ...] = ()

    @property
    def rows_parsed(self) -> int:
        return sum(self.parsed.values())

    def release(self) -> None:
        """Free what was materialised."""
        for frame in self.persisted:
            frame.unpersist()


def read_tables(spark: SparkSession, source: Source) -> Tables:
    """Parse every table once and register its good rows as a view. Raises SourceError naming table and path."""
    parsed: dict[str, int] = {}
    refused: dict[str, int] = {}
    malformed: DataFrame | None = None
    persisted = []
    for name, table in source.tables.items():
        with source_errors(source):
            rows = _read(spark, table)
            if CORRUPT in rows.columns:
                rows = rows.persist()
                persisted.append(rows)
                bad = rows.where(F.col(CORRUPT).isNotNull())
                count = bad.count()
                if count:
                    reason = f"{name}: malformed {table.format}"
                    refused[reason] = count
                    apart = bad.select(F.lit(reason).alias("reason"), F.col(CORRUPT).alias("record"), F.lit(str(table.path)).alias("source"))
                    malformed = apart if malformed is None else malformed.unionByName(apart)
            parsed[name] = rows.count()
            if not parsed[name]:
                raise SourceError(f"source.tables.{name}: {table.path} holds no rows")
            good = rows.where(F.col(CORRUPT).isNull()).drop(CORRUPT) if CORRUPT in rows.columns else rows
            good.createOrReplaceTempView(name)
    return Tables(parsed, malformed, refused, tuple(persisted))


@contextmanager
def source_errors(source: Source) -> Iterator[None]:
    """Spark's own errors about data and queries as SourceErrors that say what to do."""
    try:
        yield
    except (AnalysisException, PySparkException) as error:
        raise SourceError(f"{error}; sources: {', '.join(source.tables)}") from error


def _read(spark: SparkSession, table: Table) -> DataFrame:
    paths = [table.path] if isinstance(table.path, str) else list(table.path)
    reader = spark.read.format("csv" if table.format == "package" else table.format).options(**table.options)
    if table.format in ("csv", "json"):
        return reader.schema(f"{table.ddl}, {CORRUPT} string").option("columnNameOfCorruptRecord", CORRUPT).load(paths)
    return (reader.schema(table.ddl) if table.ddl else reader).load(paths)

"""Reads all tables of a config once, registers their valid rows as views, and returns their malformed records."""

from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.data.sources.base import RawTable, Rows
from pipelines.data.sources.formats import RawTables
from pipelines.data.sources.json_keys import notes
from pipelines.data.sources.parsed import KEY_COLUMNS, KEYLESS, LINE, ORIGIN, PROBLEM, RANGE, RECORD, UNKNOWN
from pipelines.data.sources.source_errors import table_errors
from pipelines.errors import SourceError


@dataclass(frozen=True)
class Tables:
    """The source's tables, registered as temporary views under their names; parsed rows stay persisted."""

    parsed: dict[str, int]
    """The number of records by table, including malformed ones."""
    handed_on: dict[str, int]
    """The number of rows of each view."""
    notes: tuple[str, ...] = ()
    """What is to be said of the records, such as keys of JSON that no schema names."""
    malformed: DataFrame | None = None
    """The malformed records: reason, record, source; None if there are none."""

    @property
    def rows_parsed(self) -> int:
        return sum(self.parsed.values())


def read_tables(spark: SparkSession, tables: RawTables) -> Tables:
    """Read every table once, and register its valid rows as a view.

    Raises SourceError naming table and path if one is missing, unreadable or without rows; ConfigError for a
    schema that is not DDL.
    """
    parsed: dict[str, int] = {}
    handed_on: dict[str, int] = {}
    malformed: list[DataFrame] = []
    said: list[str] = []
    for name, table in tables.items():
        with table_errors(table):
            found = table.rows(spark)
            if found.count is None:
                found.rows.persist()
            problems = _problems(found)
            said += _notes(table, found)
            parsed[name], handed_on[name] = sum(problems.values()), problems.get(None, 0)
            if not parsed[name]:
                raise SourceError(f"{table.settings.place} holds no rows; give a path that does")
        good = found.rows
        if found.ranges:
            good = good.where(F.col(PROBLEM).isNull()).drop(*ORIGIN, *KEY_COLUMNS)
        if handed_on[name] < parsed[name]:
            malformed.append(_malformed(spark, name, found))
        good.createOrReplaceTempView(f"`{name}`")
    return Tables(parsed, handed_on, tuple(said), reduce(DataFrame.unionByName, malformed) if malformed else None)


def _notes(table: RawTable[Any], found: Rows) -> list[str]:
    """What is to be said of the keys of JSON, from rows that Spark has cached."""
    rows = found.rows
    if not found.ranges or UNKNOWN not in rows.columns:
        return []
    is_keyless = F.col(PROBLEM).isNull() & F.col(KEYLESS)
    row = rows.where(is_keyless | F.col(UNKNOWN).isNotNull()).agg(F.count_if(is_keyless), F.collect_list(UNKNOWN)).first()
    assert row is not None, "an aggregate has a row"
    return list(notes(table.name, row[1], row[0], [name for name in rows.columns if name not in (*ORIGIN, *KEY_COLUMNS)]))


def _problems(found: Rows) -> dict[str | None, int]:
    """The number of records by fault, with valid ones under None. This action materialises the table."""
    if not found.ranges:
        return {None: found.rows.count() if found.count is None else found.count}
    return {row[PROBLEM]: row["count"] for row in found.rows.groupBy(PROBLEM).count().collect()}


def _malformed(spark: SparkSession, name: str, found: Rows) -> DataFrame:
    """A table's malformed records: reason, record, source as `path:line`, or `path:line+byte` in ranges inside a file."""
    places = [(number, piece.file.path, piece.start) for number, piece in enumerate(found.ranges)]
    origins = spark.createDataFrame(places, f"{RANGE} int, path string, start long")
    source = F.concat(
        F.col("path"), F.lit(":"), F.col(LINE), F.when(F.col("start") > 0, F.concat(F.lit("+"), F.col("start"))).otherwise(F.lit(""))
    )
    return (
        found.rows.where(F.col(PROBLEM).isNotNull())
        .join(F.broadcast(origins), RANGE)
        .select(F.concat(F.lit(f"{name}: "), F.col(PROBLEM)).alias("reason"), F.col(RECORD).alias("record"), source.alias("source"))
    )

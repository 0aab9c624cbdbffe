"""Reads all tables of a config once, registers their valid rows as views, and returns their malformed records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.data.sources.base import RawTables, Rows
from pipelines.data.sources.source_errors import table_errors
from pipelines.data.sources.text.json_keys import key_notes
from pipelines.data.sources.text.parsed import KEY_COLUMNS, KEYLESS, LINE, ORIGIN, PROBLEM, RANGE, RECORD, UNKNOWN
from pipelines.errors import SourceError


@dataclass(frozen=True)
class Tables:
    """The source's tables, registered as temporary views under their names; parsed rows stay persisted."""

    parsed: dict[str, int]
    """The number of records by table, including malformed ones."""
    handed_on: dict[str, int]
    """The number of rows of each view."""
    notes: tuple[str, ...] = ()
    """Remarks on the records, such as keys of JSON that no schema names."""
    malformed: DataFrame | None = None
    """The malformed records: reason, record, source; None if there are none."""

    @property
    def rows_parsed(self) -> int:
        return sum(self.parsed.values())


def read_tables(spark: SparkSession, tables: RawTables, prepare: Callable[[DataFrame], None], may_be_empty: bool = False) -> Tables:
    """Read every table once, and register its valid rows as a view. `prepare` is called with each table's rows before they are read. Raises
    SourceError naming table and path if one is missing, unreadable or, unless it `may_be_empty`, without rows; ConfigError for a schema
    that is not DDL."""
    parsed: dict[str, int] = {}
    handed_on: dict[str, int] = {}
    malformed: list[DataFrame] = []
    notes: list[str] = []
    for name, table in tables.items():
        with table_errors(table):
            table_rows = table.rows(spark)
            valid = rows = table_rows.rows
            prepare(rows)
            if table_rows.count is None:
                rows.persist()
            problems = _count_problems(table_rows)
            notes += table.notes()
            if table_rows.ranges and UNKNOWN in rows.columns:
                notes += _notes_on_keys(table.name, rows)
            parsed[name], handed_on[name] = sum(problems.values()), problems.get(None, 0)
            if not parsed[name] and not may_be_empty:
                raise SourceError(f"{table.settings.place} holds no rows; give a path that does")
        if table_rows.ranges:
            valid = rows.where(F.col(PROBLEM).isNull()).drop(*ORIGIN, *KEY_COLUMNS)
        if handed_on[name] < parsed[name]:
            malformed.append(_select_malformed(spark, name, table_rows))
        valid.createOrReplaceTempView(f"`{name}`")
    return Tables(parsed, handed_on, tuple(notes), reduce(DataFrame.unionByName, malformed) if malformed else None)


def _count_problems(table: Rows) -> dict[str | None, int]:
    """The number of records by fault, with valid ones under None. This action materialises the table."""
    if not table.ranges:
        return {None: table.rows.count() if table.count is None else table.count}
    rows = table.rows.coalesce(1) if len(table.ranges) == 1 else table.rows  # of a single task, the counts need no shuffle
    return {row[PROBLEM]: row["count"] for row in rows.groupBy(PROBLEM).count().collect()}


def _notes_on_keys(name: str, rows: DataFrame) -> Iterator[str]:
    """Notes on the keys of JSON, from rows that Spark has cached."""
    is_keyless = F.col(PROBLEM).isNull() & F.col(KEYLESS)
    row = rows.where(is_keyless | F.col(UNKNOWN).isNotNull()).agg(F.count_if(is_keyless), F.collect_list(UNKNOWN)).first()
    assert row is not None, "an aggregate has a row"
    return key_notes(name, row[1], row[0], [column for column in rows.columns if column not in (*ORIGIN, *KEY_COLUMNS)])


def _select_malformed(spark: SparkSession, name: str, table: Rows) -> DataFrame:
    """Select a table's malformed records: reason, record, source as `path:line`, or `path:line+byte` in ranges inside a file."""
    places = [(number, part.file.path, part.start) for number, part in enumerate(table.ranges)]
    origins = spark.createDataFrame(places, f"{RANGE} int, path string, start long")
    offset = F.when(F.col("start") > 0, F.concat(F.lit("+"), F.col("start"))).otherwise(F.lit(""))
    source = F.concat(F.col("path"), F.lit(":"), F.col(LINE), offset)
    records = table.rows.where(F.col(PROBLEM).isNotNull()).join(F.broadcast(origins), RANGE)
    return records.select(
        F.concat(F.lit(f"{name}: "), F.col(PROBLEM)).alias("reason"), F.col(RECORD).alias("record"), source.alias("source")
    )

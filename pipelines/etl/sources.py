"""Raw tables, parsed once, their bad records apart.

Text is parsed whole and kept: a query that reads two of five columns must not make a row of a record that has three.
(With column pruning Spark hands out five rows of a csv file of which four are malformed.) Parquet has no records to
lose, so it is read where it lies, after a look at its footers.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config.options import spark_options
from pipelines.config.source import Source, Table
from pipelines.errors import ConfigError, SourceError
from pipelines.etl import files, parse
from pipelines.etl.content import blocks_of, lines
from pipelines.etl.distribute import distribute, in_few_batches
from pipelines.etl.faults import table_errors
from pipelines.etl.files import Range
from pipelines.etl.footers import check_rows
from pipelines.etl.pack import CHECKSUM, NUMBER, Pack, Packs, check_listed, packs
from pipelines.etl.parse import LINE, ORIGIN, PROBLEM, RANGE, RECORD, Options
from pipelines.etl.records import Dialect, cut

_RECORDS = f"{RECORD} string, {PROBLEM} string, {LINE} long, {RANGE} int"


@dataclass(frozen=True)
class Tables:
    """The source's tables, registered as temporary views under their names; what was parsed for them stays persisted."""

    parsed: dict[str, int]
    """Records by table, malformed ones included."""
    handed_on: dict[str, int]
    """Those that are rows of its view."""
    malformed: DataFrame | None = None
    """They themselves: reason, record, source; None if there are none."""

    @property
    def rows_parsed(self) -> int:
        return sum(self.parsed.values())


@dataclass(frozen=True)
class _Parsed:
    rows: DataFrame
    """The table's columns, and those of ORIGIN if there are `ranges`."""
    count: int | None = None
    """Rows, if they are known without reading them."""
    ranges: tuple[Range, ...] = ()
    """What the numbers in RANGE stand for."""


def read_tables(spark: SparkSession, source: Source, packed: Packs | None = None) -> Tables:
    """Parse every table once, and register its good rows as a view. Tables of many files are `packed`, or are packed here.

    Raises SourceError naming table and path if one is missing, unreadable or without rows; ConfigError for a
    schema that is not DDL.
    """
    parsed: dict[str, int] = {}
    handed_on: dict[str, int] = {}
    malformed: list[DataFrame] = []
    packed = packs(spark, source) if packed is None else packed
    for name, table in source.tables.items():
        with table_errors(name, table.path):
            found = _read(spark, name, table, packed.get(name))
            if found.count is None:
                found.rows.persist()
            problems = _problems(found)
            parsed[name], handed_on[name] = sum(problems.values()), problems.get(None, 0)
            if not parsed[name]:
                raise SourceError(f"{table.path} holds no rows; give a path that does")
        good = found.rows
        if found.ranges:
            good = good.where(F.col(PROBLEM).isNull()).drop(*ORIGIN)
        if handed_on[name] < parsed[name]:
            malformed.append(_malformed(spark, name, found))
        good.createOrReplaceTempView(f"`{name}`")
    return Tables(parsed, handed_on, reduce(DataFrame.unionByName, malformed) if malformed else None)


def _problems(found: _Parsed) -> dict[str | None, int]:
    """Rows by what is wrong with them, the good ones under None. This is what materialises a table."""
    if not found.ranges:
        return {None: found.rows.count() if found.count is None else found.count}
    return {row[PROBLEM]: row["count"] for row in found.rows.groupBy(PROBLEM).count().collect()}


def _malformed(spark: SparkSession, name: str, found: _Parsed) -> DataFrame:
    """A table's malformed records: reason, record, source as `path:line`, or `path:line+byte` in the middle of a file."""
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


def _read(spark: SparkSession, name: str, table: Table, pack: Pack | None) -> _Parsed:
    options = spark_options(table.options)
    match table.format:
        case "binaryFile" if pack:
            rows = pack.rows.drop(CHECKSUM)
            return _Parsed(rows, rows.count())
        case "csv" | "package":
            schema = parse.schema_of(name, table)
            records, ranges = _records(spark, table, pack, parse.csv_dialect(options, schema.names))
            return _Parsed(parse.csv_rows(records, schema, table.ddl, options), None, ranges)
        case "json":
            records, ranges = _records(spark, table, pack, parse.json_dialect(options))
            return _Parsed(parse.json_rows(records, parse.schema_of(name, table), options), None, ranges)
        case "text":
            records, ranges = _records(spark, table, pack, parse.text_dialect(options))
            return _Parsed(parse.text_rows(records, parse.schema_of(name, table, "value string")), None, ranges)
        case "idx":
            paths = [file.path for path in table.paths for file in files.find(path)]
            reader = spark.read.format("idx").option("paths", json.dumps(paths))
            return _Parsed((reader.schema(table.ddl) if table.ddl else reader).load())
        case "tar":
            if table.ddl:
                raise ConfigError(f"source.tables.{name}.schema: tar has the columns path and content; leave the schema out")
            paths = [file.path for path in table.paths for file in files.find(path)]
            return _Parsed(spark.read.format("tar").option("paths", json.dumps(paths)).load())
        case _:
            return _parquet(spark, name, table, options)


def _records(spark: SparkSession, table: Table, pack: Pack | None, dialect: Dialect) -> tuple[DataFrame, tuple[Range, ...]]:
    """Records with PROBLEM, LINE and RANGE, each task a share of the bytes, and the ranges that RANGE numbers."""
    if pack:
        records = pack.rows.mapInArrow(partial(_cut_packed, dialect), _RECORDS)
        return records, tuple(Range(file, 0, file.bytes) for file in pack.files)
    found = files.find(table.path)
    if table.format == "package":
        reader = spark.read.format("package").option("dialect", json.dumps(asdict(dialect)))
        loaded = [reader.load(file.path).toDF(RECORD, PROBLEM, LINE).withColumn(RANGE, F.lit(number)) for number, file in enumerate(found)]
        return reduce(DataFrame.unionAll, loaded), tuple(Range(file, 0, file.bytes) for file in found)
    work = files.ranges(found, files.task_bytes(found, spark.sparkContext.defaultParallelism), split=dialect.splits)
    ranges = tuple(piece for pieces in work for piece in pieces)
    numbers = iter(range(len(ranges)))
    numbered = [[(next(numbers), piece) for piece in pieces] for pieces in work]
    return distribute(spark, numbered, partial(_cut, dialect), _RECORDS), ranges


def _cut(dialect: Dialect, pieces: list[tuple[int, Range]]) -> Iterator[pa.RecordBatch]:
    for number, piece in pieces:
        yield from _numbered(cut(lines(piece.file.path, piece.start, piece.stop), dialect, piece.file.path, start=piece.start == 0), number)


def _cut_packed(dialect: Dialect, packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return in_few_batches(
        batch
        for rows in packed
        for number, path, content in zip(*(rows.column(name).to_pylist() for name in (NUMBER, "path", "content")), strict=True)
        for batch in _numbered(cut(blocks_of(path, content), dialect, path), number)
    )


def _numbered(batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([*batch.columns, pa.array([number] * len(batch), pa.int32())], names=[RECORD, PROBLEM, LINE, RANGE])


def _parquet(spark: SparkSession, name: str, table: Table, options: Options) -> _Parsed:
    """There is nothing to parse, so nothing is kept."""
    paths = list(table.paths)
    # Any schema will do for a list of files, and spares Spark the inferring.
    check_listed(table, spark.read.schema("_ int").options(**options).parquet(*paths))
    rows = spark.read.options(**options).parquet(*paths)
    if table.ddl:
        schema = parse.schema_of(name, table)
        if missing := [column for column in schema.names if column.lower() not in {known.lower() for known in rows.columns}]:
            raise SourceError(f"{table.path} has no column {', '.join(missing)}; it has {', '.join(rows.columns)}")
        rows = spark.read.options(**options).schema(schema).parquet(*paths)
    return _Parsed(rows, check_rows(spark, rows, one_schema=options.get("mergeschema", "").lower() != "true"))

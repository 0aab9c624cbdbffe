"""Compares DuckDB with Spark: values on rows of the source and on hostile rows, and the type of every subexpression."""

import math
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

from pipelines.config import Config
from pipelines.data.rowwise.engine import Evaluator, quoted
from pipelines.data.rowwise.expression_parts import check_casts, parts_of
from pipelines.data.rowwise.translate import Expression, literals_in, sql_of
from pipelines.data.rowwise.untranslatable import UntranslatableError
from pipelines.data.versions.manifest import ServedQuery
from pipelines.etl.fit import raw_schema
from pipelines.etl.placement import named
from pipelines.etl.served_check_rows import hostile_rows

SAMPLE_ROWS = 2_000
"""Rows of the source; there are at least as many hostile rows."""
LONGEST_TEXT = 10_000
"""In bytes; hostile rows repeat those of the sample."""


@dataclass(frozen=True)
class Translated:
    """A translated query that is not compared with Spark yet."""

    query: ServedQuery
    others: dict[str, Expression]
    """Conditions of WHERE on columns that only the target is computed from; only ETL applies them."""
    expressions: list[Expression]
    """All of these, and the query's columns and conditions."""


def prove(spark: SparkSession, config: Config, translated: Translated) -> None:
    """Raise UntranslatableError unless DuckDB gives Spark's values, types and NULLs for rows of the source and for hostile ones."""
    with closing(Evaluator()) as evaluator:
        _prove(evaluator, spark, config, translated)


def _prove(evaluator: Evaluator, spark: SparkSession, config: Config, translated: Translated) -> None:
    query = translated.query
    _check_types(evaluator, spark.table(query.table), translated.expressions)
    expected = {name: text for name, text in query.conditions.items() if name in config.source.expect}
    where = {name: text for name, text in query.conditions.items() if name not in expected}
    where |= {name: sql_of(condition) for name, condition in translated.others.items()}
    sample, hostile = _tried(evaluator, spark.table(query.table), translated, where)
    rows = pa.concat_tables([sample, hostile]).combine_chunks()
    dropped = evaluator.refused(rows, where)
    holds = {f"expect.{name}": f"({text}) IS TRUE" for name, text in expected.items()}
    ours, raised = evaluator.columns(rows.filter(pc.is_null(dropped)), query.columns | holds)
    errors = iter(raised)
    said = [next(errors) if name is None else None if name in where else name for name in dropped.to_pylist()]
    if failed := next(filter(None, said[: len(sample)]), None):
        raise UntranslatableError(f"for a row of the source {failed}")
    sound = rows.filter(pa.array([error is None for error in said], pa.bool_()))  # the served model refuses rows that fail, too
    theirs = _by_spark(spark, config, query, sound, list(expected))
    _compare(ours.filter(pa.array([error is None for error in raised], pa.bool_())), theirs)


def _tried(evaluator: Evaluator, table: DataFrame, translated: Translated, where: dict[str, str]) -> tuple[pa.Table, pa.Table]:
    """Rows of the source, and hostile rows made from those that the query keeps: values of dropped rows are not compared."""
    parts = list(parts_of(translated.expressions).values())
    sample = _sample(table, parts)
    kept = sample.filter(pc.is_null(evaluator.refused(sample, where)))
    if not len(kept):
        raise UntranslatableError(f"the query keeps none of the source's first {len(sample)} rows")
    names = [name for name in translated.query.input_schema.names if any(quoted(name) in part for part in parts)]
    return sample, hostile_rows(kept, names, set().union(*map(literals_in, translated.expressions)))


def _check_types(evaluator: Evaluator, table: DataFrame, expressions: list[Expression]) -> None:
    parts, columns = parts_of(expressions), raw_schema(table)
    theirs = raw_schema(table.select(*[F.expr(part).alias(f"c{number}") for number, part in enumerate(parts)])).types
    ours = evaluator.types(columns, parts.values())
    for part, mine, spark_s in zip(parts, ours, theirs, strict=True):
        if mine != spark_s:
            raise UntranslatableError(f"{part[:60]} is {mine} of DuckDB's, {spark_s} of Spark's")
    check_casts(expressions, dict(zip(parts, theirs, strict=True)), columns)


def _sample(table: DataFrame, expressions: list[str]) -> pa.Table:
    """Rows of the source. Columns that the expressions do not read are NULL, and so is long text that they do read."""

    def column(field: StructField) -> Column:
        if not any(quoted(field.name) in text for text in expressions):
            return F.lit(None).cast(field.dataType)
        if isinstance(field.dataType, StringType):
            return F.when(F.octet_length(named(field.name)) <= LONGEST_TEXT, named(field.name))
        return named(field.name)

    rows = table.select(*[column(field).alias(field.name) for field in table.schema])
    # One partition at a time: `toArrow` would start all of them.
    return pa.Table.from_pylist([row.asDict() for row in rows.take(SAMPLE_ROWS)], raw_schema(rows))


def _by_spark(spark: SparkSession, config: Config, query: ServedQuery, rows: pa.Table, expected: list[str]) -> pa.Table:
    """The query's result on these rows, and whether expectations hold."""
    views = {name: spark.table(name) for name in config.source.tables}
    try:
        for name, view in views.items():
            tried = spark.createDataFrame(rows, view.schema) if name == query.table else view.limit(0)
            tried.createOrReplaceTempView(name)
        hold = [F.coalesce(F.expr(config.source.expect[name]), F.lit(False)).alias(f"expect.{name}") for name in expected]
        return spark.sql(config.source.sql).select(*[named(name) for name in query.columns], *hold).toArrow()
    finally:
        for name, view in views.items():
            view.createOrReplaceTempView(name)


def _compare(ours: pa.Table, theirs: pa.Table) -> None:
    if len(ours) != len(theirs):
        raise UntranslatableError(f"of the sample DuckDB keeps {len(ours)} rows, Spark {len(theirs)}")
    for name, mine, spark_s in zip(theirs.column_names, ours.columns, theirs.columns, strict=True):
        if mine.type != spark_s.type:
            raise UntranslatableError(f"{name} is {mine.type} of DuckDB's, {spark_s.type} of Spark's")
        for one, other in zip(mine.to_pylist(), spark_s.to_pylist(), strict=True):
            if one != other and not (isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)):
                raise UntranslatableError(f"{name} is {one!r} of DuckDB's, {other!r} of Spark's")

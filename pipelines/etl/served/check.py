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
from pipelines.data.rowwise.engine import Evaluator, quote_identifier
from pipelines.data.rowwise.expression_parts import check_casts, subexpressions
from pipelines.data.rowwise.translate import Expression, literals_in, to_duckdb_sql
from pipelines.data.rowwise.untranslatable import UntranslatableError
from pipelines.data.versions.manifest import ServedQuery
from pipelines.etl.raw_schema import raw_schema
from pipelines.etl.served.check_rows import hostile_rows
from pipelines.etl.splits.splits import exact_column

SAMPLE_ROWS = 2_000
"""Rows of the source; there are at least as many hostile rows."""
LONGEST_TEXT = 10_000
"""In bytes; hostile rows repeat those of the sample."""


@dataclass(frozen=True)
class TranslatedQuery:
    """A translated query that is not compared with Spark yet."""

    query: ServedQuery
    etl_conditions: dict[str, Expression]
    """Conditions of WHERE on columns that only the target is computed from; only ETL applies them."""
    expressions: list[Expression]
    """All of these, and the query's columns and conditions."""


def prove(spark: SparkSession, config: Config, translated: TranslatedQuery) -> None:
    """Raise UntranslatableError unless DuckDB gives Spark's values, types and NULLs for rows of the source and for hostile ones."""
    with closing(Evaluator()) as evaluator:
        _prove(evaluator, spark, config, translated)


def _prove(evaluator: Evaluator, spark: SparkSession, config: Config, translated: TranslatedQuery) -> None:
    query = translated.query
    _check_types(evaluator, spark.table(query.table), translated.expressions)
    expected = {name: text for name, text in query.conditions.items() if name in config.source.expect}
    where = {name: text for name, text in query.conditions.items() if name not in expected}
    where |= {name: to_duckdb_sql(condition) for name, condition in translated.etl_conditions.items()}
    sample, hostile = _rows_to_compare(evaluator, spark.table(query.table), translated, where)
    rows = pa.concat_tables([sample, hostile]).combine_chunks()
    dropped = evaluator.refusal_reasons(rows, where)
    holds = {f"expect.{name}": f"({text}) IS TRUE" for name, text in expected.items()}
    duckdb_columns, value_errors = evaluator.columns(rows.filter(pc.is_null(dropped)), query.columns | holds)
    errors = iter(value_errors)
    row_errors = [next(errors) if name is None else None if name in where else name for name in dropped.to_pylist()]
    if failed := next(filter(None, row_errors[: len(sample)]), None):
        raise UntranslatableError(f"for a row of the source {failed}")
    sound = rows.filter(pa.array([error is None for error in row_errors], pa.bool_()))  # the served model refuses rows that fail, too
    spark_columns = _spark_result(spark, config, query, sound, list(expected))
    _compare(duckdb_columns.filter(pa.array([error is None for error in value_errors], pa.bool_())), spark_columns)


def _rows_to_compare(
    evaluator: Evaluator, table: DataFrame, translated: TranslatedQuery, where: dict[str, str]
) -> tuple[pa.Table, pa.Table]:
    """Rows of the source, and hostile rows made from those that the query keeps: values of dropped rows are not compared."""
    parts = list(subexpressions(translated.expressions).values())
    sample = _sample(table, parts)
    kept_rows = sample.filter(pc.is_null(evaluator.refusal_reasons(sample, where)))
    if not len(kept_rows):
        raise UntranslatableError(f"the query keeps none of the source's first {len(sample)} rows")
    names = [name for name in translated.query.input_schema.names if any(quote_identifier(name) in part for part in parts)]
    return sample, hostile_rows(kept_rows, names, set().union(*map(literals_in, translated.expressions)))


def _check_types(evaluator: Evaluator, table: DataFrame, expressions: list[Expression]) -> None:
    parts, columns = subexpressions(expressions), raw_schema(table)
    spark_types = raw_schema(table.select(*[F.expr(part).alias(f"c{number}") for number, part in enumerate(parts)])).types
    duckdb_types = evaluator.types(columns, parts.values())
    for part, duckdb_type, spark_type in zip(parts, duckdb_types, spark_types, strict=True):
        if duckdb_type != spark_type:
            raise UntranslatableError(f"{part[:60]} is {duckdb_type} of DuckDB's, {spark_type} of Spark's")
    check_casts(expressions, dict(zip(parts, spark_types, strict=True)), columns)


def _sample(table: DataFrame, expressions: list[str]) -> pa.Table:
    """Rows of the source. Columns that the expressions do not read are NULL, and so is long text that they do read."""

    def column(field: StructField) -> Column:
        if not any(quote_identifier(field.name) in text for text in expressions):
            return F.lit(None).cast(field.dataType)
        if isinstance(field.dataType, StringType):
            return F.when(F.octet_length(exact_column(field.name)) <= LONGEST_TEXT, exact_column(field.name))
        return exact_column(field.name)

    rows = table.select(*[column(field).alias(field.name) for field in table.schema])
    # One partition at a time: `toArrow` would start all of them.
    return pa.Table.from_pylist([row.asDict() for row in rows.take(SAMPLE_ROWS)], raw_schema(rows))


def _spark_result(spark: SparkSession, config: Config, query: ServedQuery, rows: pa.Table, expected: list[str]) -> pa.Table:
    """The query's result on these rows, and whether expectations hold."""
    views = {name: spark.table(name) for name in config.source.tables}
    try:
        for name, view in views.items():
            view_rows = spark.createDataFrame(rows, view.schema) if name == query.table else view.limit(0)
            view_rows.createOrReplaceTempView(name)
        hold = [F.coalesce(F.expr(config.source.expect[name]), F.lit(False)).alias(f"expect.{name}") for name in expected]
        return spark.sql(config.source.sql).select(*[exact_column(name) for name in query.columns], *hold).toArrow()
    finally:
        for name, view in views.items():
            view.createOrReplaceTempView(name)


def _compare(duckdb_columns: pa.Table, spark_columns: pa.Table) -> None:
    if len(duckdb_columns) != len(spark_columns):
        raise UntranslatableError(f"of the sample DuckDB keeps {len(duckdb_columns)} rows, Spark {len(spark_columns)}")
    for name, duckdb_column, spark_column in zip(spark_columns.column_names, duckdb_columns.columns, spark_columns.columns, strict=True):
        if duckdb_column.type != spark_column.type:
            raise UntranslatableError(f"{name} is {duckdb_column.type} of DuckDB's, {spark_column.type} of Spark's")
        for duckdb_value, spark_value in zip(duckdb_column.to_pylist(), spark_column.to_pylist(), strict=True):
            if duckdb_value != spark_value and not (
                isinstance(duckdb_value, float) and isinstance(spark_value, float) and math.isnan(duckdb_value) and math.isnan(spark_value)
            ):
                raise UntranslatableError(f"{name} is {duckdb_value!r} of DuckDB's, {spark_value!r} of Spark's")

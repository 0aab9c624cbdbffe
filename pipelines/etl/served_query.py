"""Decides what the served model takes: raw rows if the query works row by row and DuckDB gives Spark's values, else its columns.

1. `translate_query` translates the query from Spark's SQL.
2. `prove` compares DuckDB with Spark: values on rows of the source and on hostile rows, and the type of every subexpression.
3. `hostile_rows` are those on which engines are known to differ: NULL, NaN, extremes, odd text, and values around the query's constants.
"""

import logging
import math
import re
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, localcontext
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

from pipelines.config import Config
from pipelines.data.rowwise.engine import Evaluator
from pipelines.data.rowwise.translate import (
    Expression,
    Rowwise,
    UntranslatableError,
    check_casts,
    columns_in,
    duckdb_errors,
    literals_in,
    rowwise,
    subexpressions,
    to_duckdb_sql,
)
from pipelines.data.sources.source_errors import fails_any_stage
from pipelines.data.versions.manifest import ServedQuery, quote_identifier
from pipelines.data.versions.schema import schema_to_text
from pipelines.etl.splits.split_assignment import exact_column, raw_schema
from pipelines.runtime.compat.spark import context_is_stopped
from pipelines.runtime.interrupts import first_signal

log = logging.getLogger(__name__)

_NOT_SERVED = "the model takes the query's columns; the query is not served"
SAMPLE_ROWS = 2_000
"""Rows of the source; there are at least as many hostile rows."""
LONGEST_TEXT = 10_000
"""In bytes; hostile rows repeat those of the sample."""
_MIXED_ROWS = 2_000
"""Rows with hostile values in several columns, in addition to those with one."""
_MIXED_SHARE = 0.3
_TEXTS = (
    "", " ", " a ", "ß", "İ", "ǆ", "e\u0301", "😀x", "1", "-1", " 1 ", "1.5", "1e3", "abc", "NaN", "true", "\t\n", "%", "'", "9" * 21,
    "2026-02-29", "2026", "2026-1-2", " 2026-01-02", "2026-01-02T03:04:05", "today", "infinity", "1f", "1d", ".5", "5.", "+1", "0x1f",
    "1_000", "yes", "t", "on", "TRUE", "no", "y", "0", "\u00a0a\u3000", "\x00", "a\u200bb",
)  # fmt: skip
_FLOATS = (0.0, -0.0, 0.1, 0.5, 1.5, 2.5, -0.5, -1.5, 1e300, 5e-324, math.nan, math.inf, -math.inf)
_AROUND = ("{}", " {}", "{} x", "x{}y")
_DIGITS = 76
"""Of decimals: Python rounds to 28 by default, and Spark has up to 38 on either side of the point."""
_DATES = (date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31))


@dataclass(frozen=True)
class TranslatedQuery:
    """A translated query that is not compared with Spark yet."""

    query: ServedQuery
    etl_conditions: dict[str, Expression]
    """Conditions of WHERE on columns that only the target is computed from; only ETL applies them."""
    expressions: list[Expression]
    """All of these, and the query's columns and conditions."""


def translate_query(spark: SparkSession, config: Config, rows: DataFrame) -> ServedQuery | None:
    """The translated query with the conditions for refusing rows; None if the model has to take the query's columns. Transient failures,
    such as a dead process, are raised as in any stage, since a version is made only once."""
    try:
        translation = _translate(spark, config, rows)
        if translation is not None:
            with duckdb_errors():
                prove(spark, config, translation)
            log.info("the model will take rows of %s before the query", translation.query.table)
    except UntranslatableError as error:
        log.debug("%s: %s", _NOT_SERVED, error)
        return None
    except Exception as error:  # a defect of a library must not prevent the version
        if first_signal() is not None or context_is_stopped() or fails_any_stage(error):
            raise
        log.warning("%s: %s: %s", _NOT_SERVED, type(error).__name__, next(iter(str(error).splitlines()), ""))
        return None
    return translation.query if translation else None


def _translate(spark: SparkSession, config: Config, rows: DataFrame) -> TranslatedQuery | None:
    """The query before its comparison with Spark. None if it computes nothing."""
    if config.source.windows:
        raise UntranslatableError("source.windows takes several rows together")
    schemas = {name: raw_schema(spark.table(f"`{name}`")) for name in config.source.tables}
    branches = rowwise(config.source.sql, {name: schema.names for name, schema in schemas.items()})
    translations = [_translate_branch(branch, config, rows, schemas[branch.table]) for branch in branches]
    query = translations[0].query
    if any(other.query.model_copy(update={"table": query.table}) != query for other in translations):
        raise UntranslatableError("the parts of its UNION ALL differ")
    is_plain = all(expression == f'"{name}"' for name, expression in query.columns.items())
    return None if is_plain and not query.conditions else translations[0]


def _translate_branch(branch: Rowwise, config: Config, rows: DataFrame, schema: pa.Schema) -> TranslatedQuery:
    dataset = config.dataset
    if len(branch.columns) != len(rows.columns):
        raise UntranslatableError("its columns are not all known")
    columns = dict(zip(rows.columns, branch.columns.values(), strict=True))
    features = {column for name, settings in dataset.features.items() for column in settings.inputs(name)}
    targets = {column for name, settings in dataset.target.items() for column in settings.inputs(name)}
    columns_of_features = _columns_read(columns[name] for name in features)
    carried = {column for name, settings in dataset.passthrough.items() for column in settings.inputs(name)}
    hidden = _columns_read(columns[name] for name in targets)
    if shared := hidden & columns_of_features:
        raise UntranslatableError(f"the target is made of {', '.join(sorted(shared))}, and so are features")
    hidden |= _columns_read(columns[name] for name in carried) - columns_of_features
    conditions = {**branch.conditions, **{name: branch.condition(text) for name, text in config.source.expect.items()}}
    served_conditions = {name: condition for name, condition in conditions.items() if not columns_in(condition) & hidden}
    columns_taken = columns_of_features | _columns_read(served_conditions.values())
    query = ServedQuery(
        table=branch.table,
        inputs=schema_to_text(pa.schema([field for field in schema if field.name in columns_taken])),
        columns={name: to_duckdb_sql(columns[name]) for name in rows.columns if name in features},
        conditions={name: to_duckdb_sql(condition) for name, condition in served_conditions.items()},
    )
    where = {name: condition for name, condition in branch.conditions.items() if name not in served_conditions}
    return TranslatedQuery(query, where, [columns[name] for name in query.columns] + [*served_conditions.values(), *where.values()])


def _columns_read(expressions: Iterable[Expression]) -> set[str]:
    return reduce(or_, map(columns_in, expressions), set())


def prove(spark: SparkSession, config: Config, translated: TranslatedQuery) -> None:
    """Raise UntranslatableError unless DuckDB gives Spark's values, types and NULLs for rows of the source and for hostile ones."""
    with closing(Evaluator()) as evaluator:
        _prove(evaluator, spark, config, translated)


def _prove(evaluator: Evaluator, spark: SparkSession, config: Config, translated: TranslatedQuery) -> None:
    query = translated.query
    table = spark.table(f"`{query.table}`")
    parts, columns = subexpressions(translated.expressions), raw_schema(table)
    spark_types = raw_schema(table.select(*[F.expr(part).alias(f"c{number}") for number, part in enumerate(parts)])).types
    for part, duckdb_type, spark_type in zip(parts, evaluator.types(columns, parts.values()), spark_types, strict=True):
        if duckdb_type != spark_type:
            raise UntranslatableError(f"{part[:60]} is {duckdb_type} of DuckDB's, {spark_type} of Spark's")
    check_casts(translated.expressions, dict(zip(parts, spark_types, strict=True)), columns)
    expected = {name: text for name, text in query.conditions.items() if name in config.source.expect}
    where = {name: text for name, text in query.conditions.items() if name not in expected}
    where |= {name: to_duckdb_sql(condition) for name, condition in translated.etl_conditions.items()}
    sample, hostile = _rows_to_compare(evaluator, table, translated, where)
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
    views = {name: spark.table(f"`{name}`") for name in config.source.tables}
    try:
        for name, view in views.items():
            view_rows = spark.createDataFrame(rows, view.schema) if name == query.table else view.limit(0)
            view_rows.createOrReplaceTempView(f"`{name}`")
        hold = [F.coalesce(F.expr(config.source.expect[name]), F.lit(False)).alias(f"expect.{name}") for name in expected]
        return spark.sql(config.source.sql).select(*[exact_column(name) for name in query.columns], *hold).toArrow()
    finally:
        for name, view in views.items():
            view.createOrReplaceTempView(f"`{name}`")


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


def hostile_rows(sample: pa.Table, names: Iterable[str], literals: Iterable[str]) -> pa.Table:
    """Rows of the sample with a hostile value in one or several of the named columns. The result is deterministic. Raises
    UntranslatableError for a type that is not compared."""
    chance = np.random.default_rng(0)
    with localcontext(prec=_DIGITS):
        values = {name: _values(sample.schema.field(name).type, sorted(literals)) for name in names}
    single = [(name, value) for name, column_values in values.items() for value in column_values]
    count = len(single) + _MIXED_ROWS
    base = sample.take(pa.array(np.arange(count) % len(sample)))
    columns = dict(zip(base.column_names, base.columns, strict=True))
    for name, column_values in values.items():
        is_replaced = np.concatenate([[column == name for column, _ in single], chance.random(_MIXED_ROWS) < _MIXED_SHARE])
        replacements = [value if column == name else None for column, value in single] + [
            column_values[i] for i in chance.integers(0, len(column_values), _MIXED_ROWS)
        ]
        columns[name] = pc.if_else(pa.array(is_replaced.astype(bool)), pa.array(replacements, base[name].type), base[name])
    return pa.table(columns, schema=sample.schema)


def _values(kind: pa.DataType, literals: list[str]) -> list[Any]:
    numbers = [sign * Decimal(text) for text in literals if re.fullmatch(r"[0-9]+(\.[0-9]+)?(e-?[0-9]{1,2})?", text) for sign in (1, -1)]
    if types.is_boolean(kind):
        return [None, True, False]
    if types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        integers = [0, 1, -1, limit - 1, -limit, *(int(number) + step for number in numbers for step in (-1, 0, 1))]
        return [None, *(value for value in integers if -limit <= value < limit)]
    if types.is_floating(kind):
        floats = [
            value for number in map(float, numbers) for value in (number, float(np.float32(number)), math.nextafter(number, math.inf))
        ]
        narrow = kind.bit_width < 64
        return [None, *(float(np.float32(value)) if narrow else value for value in (*_FLOATS, *floats) if not narrow or value != 1e300)]
    if types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        most = (10**kind.precision - 1) * step
        around = [number.quantize(step) + offset for number in numbers if abs(number) < most for offset in (-step, Decimal(0), step)]
        return [None, Decimal(0), *(value for value in (most, -most, *around) if abs(value) <= most)]
    if types.is_string(kind):
        return [None, *_TEXTS, *(text.format(literal) for literal in literals for text in _AROUND), *(text.upper() for text in literals)]
    if types.is_date32(kind):
        days = []
        for text in literals:
            if re.fullmatch(r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}", text):
                with suppress(ValueError):  # not a date, such as 2026-02-29
                    days.append(date.fromisoformat(text))
        return [None, *_DATES, *(day + timedelta(step) for day in days for step in (-1, 0, 1))]
    raise UntranslatableError(f"values of type {kind} are compared with Spark only where the query passes them through unchanged")

"""What the served model takes: raw rows, where the query works row by row and DuckDB is found to give Spark's own values."""

import logging
import math
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
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
from pipelines.dataset.manifest import ServedQuery
from pipelines.dataset.schema import schema_to_text
from pipelines.etl.fit import raw_schema
from pipelines.etl.order import named
from pipelines.rowwise.evaluate import Evaluator, quoted
from pipelines.rowwise.translate import Rowwise, UntranslatableError, columns_in, literals_in, rowwise, sql_of

log = logging.getLogger(__name__)

SAMPLE_ROWS = 2_000
"""Of the source, and as many again of values that engines are known to differ on."""
LONGEST_TEXT = 10_000
"""In bytes; hostile rows repeat the sample's."""
_TEXTS = (
    "", " ", " a ", "ß", "İ", "ǆ", "e\u0301", "😀x", "1", "-1", " 1 ", "1.5", "1e3", "abc", "NaN", "true", "\t\n", "%", "'", "9" * 21,
    "2026-02-29", "2026", "2026-1-2", " 2026-01-02", "2026-01-02T03:04:05", "today", "infinity", "1f", "1d", ".5", "5.", "+1", "0x1f",
    "1_000", "yes", "t", "on",
)  # fmt: skip
_FLOATS = (0.0, -0.0, 0.1, 0.5, 1.5, 2.5, -0.5, -1.5, 1e300, 5e-324, math.nan, math.inf, -math.inf)
_DATES = (date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31))


def served_query(spark: SparkSession, config: Config, rows: DataFrame) -> ServedQuery | None:
    """How raw rows become the query's, and which of them ETL refuses; None if the model is to take the query's columns."""
    try:
        found = _translated(spark, config, rows)
        if found is not None:
            _prove(spark, config, *found)
            log.info("the model will take rows of %s before the query", found[0].table)
    except Exception as error:  # of whichever library: a version is made all the same
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        log.info("the model will take the query's columns, for the query cannot be served: %s", reason)
        return None
    return found[0] if found else None


def _translated(spark: SparkSession, config: Config, rows: DataFrame) -> tuple[ServedQuery, dict[str, str], set[str]] | None:
    """The query, with the conditions that only ETL asks, and what is written in it. None where raw rows are the query's."""
    schemas = {name: raw_schema(spark.table(name)) for name in config.source.tables}
    branches = rowwise(config.source.sql, {name: schema.names for name, schema in schemas.items()})
    made = [_of_branch(branch, config, rows, schemas[branch.table]) for branch in branches]
    if any(query.model_copy(update={"table": ""}) != made[0][0].model_copy(update={"table": ""}) for query, _, _ in made):
        raise UntranslatableError("the parts of its UNION ALL differ")
    query = made[0][0]
    plain = all(expression == f'"{name}"' for name, expression in query.columns.items())
    return None if plain and not query.conditions else made[0]


def _of_branch(branch: Rowwise, config: Config, rows: DataFrame, schema: pa.Schema) -> tuple[ServedQuery, dict[str, str], set[str]]:
    dataset = config.dataset
    if len(branch.columns) != len(rows.columns):
        raise UntranslatableError("its columns are not all known")
    columns = dict(zip(rows.columns, branch.columns.values(), strict=True))
    features = {column for name, settings in dataset.features.items() for column in settings.inputs(name)}
    targets = {column for name, settings in dataset.target.items() for column in settings.inputs(name)}
    read = _read(columns[name] for name in features)
    hidden = _read(columns[name] for name in targets) - read
    conditions = {**branch.conditions, **{name: branch.condition(text) for name, text in config.source.expect.items()}}
    asked = {name: condition for name, condition in conditions.items() if not columns_in(condition) & hidden}
    taken = read | _read(asked.values())
    query = ServedQuery(
        table=branch.table,
        inputs=schema_to_text(pa.schema([field for field in schema if field.name in taken])),
        columns={name: sql_of(columns[name]) for name in rows.columns if name in features},
        conditions={name: sql_of(condition) for name, condition in asked.items()},
    )
    others = {name: sql_of(condition) for name, condition in conditions.items() if name not in asked and name not in config.source.expect}
    literals = {text for expression in [*columns.values(), *conditions.values()] for text in literals_in(expression)}
    return query, others, literals


def _read(expressions: Iterable[Any]) -> set[str]:
    return reduce(or_, map(columns_in, expressions), set())


def _prove(spark: SparkSession, config: Config, query: ServedQuery, others: dict[str, str], literals: set[str]) -> None:
    """Raise UntranslatableError unless DuckDB gives Spark's values, types and NULLs for rows of the source and for hostile ones."""
    evaluator, plain = Evaluator(), {quoted(name) for name in query.taken.names}
    computed = [*(text for text in query.columns.values() if text not in plain), *query.conditions.values()]
    sample = _sample(spark.table(query.table), [*computed, *others.values()])
    tried = [name for name in query.taken.names if any(quoted(name) in text for text in computed)]
    rows = pa.concat_tables([sample, _hostile(sample, tried, literals)]).combine_chunks()
    where = {name: text for name, text in query.conditions.items() if name not in config.source.expect} | others
    expected = {name: text for name, text in query.conditions.items() if name in config.source.expect}
    dropped = evaluator.refused(rows, where)
    ours, raised = evaluator.columns(
        rows.filter(pc.is_null(dropped)), query.columns | {f"expect.{name}": f"({text}) IS TRUE" for name, text in expected.items()}
    )
    errors = iter(raised)
    said = [next(errors) if name is None else None if name in where else name for name in dropped.to_pylist()]
    if real_error := next(filter(None, said[: len(sample)]), None):
        raise UntranslatableError(f"for a row of the source {real_error}")
    sound = rows.filter(pa.array([error is None for error in said], pa.bool_()))  # what raised will be refused when served, too
    theirs = _by_spark(spark, config, query, sound, list(expected))
    _compare(ours.filter(pa.array([error is None for error in raised], pa.bool_())), theirs)


def _sample(table: DataFrame, expressions: list[str]) -> pa.Table:
    """Rows of the source; NULL is what the expressions do not read, however long it is, and what is long of the text that they read."""

    def column(field: StructField) -> Column:
        if not any(quoted(field.name) in text for text in expressions):
            return F.lit(None).cast(field.dataType)
        if isinstance(field.dataType, StringType):
            return F.when(F.octet_length(named(field.name)) <= LONGEST_TEXT, named(field.name))
        return named(field.name)

    rows = table.select(*[column(field).alias(field.name) for field in table.schema])
    # One partition after the other: `toArrow` would begin all of them.
    return pa.Table.from_pylist([row.asDict() for row in rows.take(SAMPLE_ROWS)], raw_schema(rows))


def _by_spark(spark: SparkSession, config: Config, query: ServedQuery, rows: pa.Table, expected: list[str]) -> pa.Table:
    """The query over these rows in place of its tables', and whether expectations hold."""
    views = {name: spark.table(name) for name in config.source.tables}
    try:
        for name, view in views.items():
            spark.createDataFrame(rows if name == query.table else [], view.schema).createOrReplaceTempView(name)
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


def _hostile(sample: pa.Table, names: list[str], literals: set[str]) -> pa.Table:
    """Rows of the sample, with a hostile value in one column, or in several."""
    if not len(sample):
        raise UntranslatableError("the source has no rows to try it on")
    chance, values = np.random.default_rng(0), {name: _values(sample.schema.field(name).type, literals) for name in names}
    single = [(name, value) for name, found in values.items() for value in found]
    count = len(single) + SAMPLE_ROWS
    places = np.arange(count) % len(sample)
    columns = {}
    for name in sample.column_names:
        column = sample[name].take(pa.array(places))
        if found := values.get(name):
            mixed = chance.random(count) < 0.3
            mixed[: len(single)] = [one == name for one, _ in single]
            drawn = [value if one == name else None for one, value in single] + [
                found[i] for i in chance.integers(0, len(found), SAMPLE_ROWS)
            ]
            column = pc.if_else(pa.array(mixed), pa.array(drawn, column.type), column)
        columns[name] = column
    return pa.table(columns, schema=sample.schema)


def _values(kind: pa.DataType, literals: set[str]) -> list[Any]:
    """NULL, extremes, and what lies around the literals of the query. Raises UntranslatableError for a type that is not compared."""
    numbers = [float(text) for text in sorted(literals) if text.replace(".", "", 1).replace("e", "", 1).isdigit()]
    if types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        whole: list[int] = [int(number) + step for number in numbers for step in (-1, 0, 1)]
        return [None, *(value for value in [0, 1, -1, limit - 1, -limit, *whole] if -limit <= value < limit)]
    if types.is_floating(kind):
        near = [beside for number in numbers for beside in (number, -number, float(np.float32(number)), math.nextafter(number, math.inf))]
        wide = [None, *_FLOATS, *near]
        return wide if kind.bit_width == 64 else [value if value is None else float(np.float32(value)) for value in wide if value != 1e300]
    if types.is_string(kind):
        return [
            None,
            *_TEXTS,
            *(text for literal in literals for text in (literal, f" {literal}", f"{literal} x", f"x{literal}y", literal.upper())),
        ]
    if types.is_boolean(kind):
        return [None, True, False]
    if types.is_decimal(kind):
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
        return [None, Decimal(0), most, -most]
    if types.is_date32(kind):
        return [None, *_DATES]
    raise UntranslatableError(f"of {kind} only what is handed on as it is is known to be the same without Spark")

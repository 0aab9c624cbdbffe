"""Decides what the served model takes: raw rows if the query works row by row and DuckDB gives Spark's values, else its columns."""

import logging
from collections.abc import Iterable
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.data.rowwise.translate import Expression, Rowwise, columns_in, rowwise, sql_of
from pipelines.data.rowwise.untranslatable import UntranslatableError, duckdb_errors
from pipelines.data.sources.source_errors import fails_any_stage
from pipelines.data.versions.manifest import ServedQuery
from pipelines.data.versions.schema import schema_to_text
from pipelines.etl.fit import raw_schema
from pipelines.etl.served_check import Translated, prove
from pipelines.runtime.compat.spark import context_is_stopped
from pipelines.runtime.interrupts import received

log = logging.getLogger(__name__)

_NOT_SERVED = "the model will take the query's columns, for the query cannot be served"


def served_query(spark: SparkSession, config: Config, rows: DataFrame) -> ServedQuery | None:
    """The translated query with the conditions for refusing rows; None if the model has to take the query's columns.

    Transient failures, such as a dead process, are raised as in any stage, since a version is made only once.
    """
    try:
        found = _translated(spark, config, rows)
        if found is not None:
            with duckdb_errors():
                prove(spark, config, found)
            log.info("the model will take rows of %s before the query", found.query.table)
    except UntranslatableError as error:
        log.info("%s: %s", _NOT_SERVED, error)
        return None
    except Exception as error:  # a defect of a library must not prevent the version
        if received() is not None or context_is_stopped() or fails_any_stage(error):
            raise
        log.warning("%s: %s: %s", _NOT_SERVED, type(error).__name__, next(iter(str(error).splitlines()), ""))
        return None
    return found.query if found else None


def _translated(spark: SparkSession, config: Config, rows: DataFrame) -> Translated | None:
    """The query before its comparison with Spark. None if it computes nothing."""
    schemas = {name: raw_schema(spark.table(name)) for name in config.source.tables}
    branches = rowwise(config.source.sql, {name: schema.names for name, schema in schemas.items()})
    made = [_of_branch(branch, config, rows, schemas[branch.table]) for branch in branches]
    query = made[0].query
    if any(other.query.model_copy(update={"table": query.table}) != query for other in made):
        raise UntranslatableError("the parts of its UNION ALL differ")
    plain = all(expression == f'"{name}"' for name, expression in query.columns.items())
    return None if plain and not query.conditions else made[0]


def _of_branch(branch: Rowwise, config: Config, rows: DataFrame, schema: pa.Schema) -> Translated:
    dataset = config.dataset
    if len(branch.columns) != len(rows.columns):
        raise UntranslatableError("its columns are not all known")
    columns = dict(zip(rows.columns, branch.columns.values(), strict=True))
    features = {column for name, settings in dataset.features.items() for column in settings.inputs(name)}
    targets = {column for name, settings in dataset.target.items() for column in settings.inputs(name)}
    read = _read(columns[name] for name in features)
    carried = {column for name, settings in dataset.passthrough.items() for column in settings.inputs(name)}
    hidden = _read(columns[name] for name in targets)
    if both := hidden & read:
        raise UntranslatableError(f"the target is made of {', '.join(sorted(both))}, which a served row then lacks, and so are features")
    hidden |= _read(columns[name] for name in carried) - read
    conditions = {**branch.conditions, **{name: branch.condition(text) for name, text in config.source.expect.items()}}
    asked = {name: condition for name, condition in conditions.items() if not columns_in(condition) & hidden}
    taken = read | _read(asked.values())
    query = ServedQuery(
        table=branch.table,
        inputs=schema_to_text(pa.schema([field for field in schema if field.name in taken])),
        columns={name: sql_of(columns[name]) for name in rows.columns if name in features},
        conditions={name: sql_of(condition) for name, condition in asked.items()},
    )
    where = {name: condition for name, condition in branch.conditions.items() if name not in asked}
    return Translated(query, where, [columns[name] for name in query.columns] + [*asked.values(), *where.values()])


def _read(expressions: Iterable[Expression]) -> set[str]:
    return reduce(or_, map(columns_in, expressions), set())

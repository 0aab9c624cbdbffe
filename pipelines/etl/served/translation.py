"""Decides what the served model takes: raw rows if the query works row by row and DuckDB gives Spark's values, else its columns."""

import logging
from collections.abc import Iterable
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.data.rowwise.translate import Expression, Rowwise, columns_in, rowwise, to_duckdb_sql
from pipelines.data.rowwise.untranslatable import UntranslatableError, duckdb_errors
from pipelines.data.sources.source_errors import fails_any_stage
from pipelines.data.versions.manifest import ServedQuery
from pipelines.data.versions.schema import schema_to_text
from pipelines.etl.raw_schema import raw_schema
from pipelines.etl.served.check import TranslatedQuery, prove
from pipelines.runtime.compat.spark import context_is_stopped
from pipelines.runtime.interrupts import first_signal

log = logging.getLogger(__name__)

_NOT_SERVED = "the model takes the query's columns; the query is not served"


def translate_query(spark: SparkSession, config: Config, rows: DataFrame) -> ServedQuery | None:
    """The translated query with the conditions for refusing rows; None if the model has to take the query's columns.

    Transient failures, such as a dead process, are raised as in any stage, since a version is made only once.
    """
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
    schemas = {name: raw_schema(spark.table(name)) for name in config.source.tables}
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

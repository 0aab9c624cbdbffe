"""Checks a config before any data are read, by analysing its query and its expectations on empty tables.

Parquet's schema comes from its footers; every other table declares one.
"""

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import Config
from pipelines.data.features import check_columns
from pipelines.data.sources.formats import RawTables
from pipelines.data.sources.source_errors import source_errors, table_errors
from pipelines.etl import splits
from pipelines.etl.determinism import plan_warnings, refuse_nondeterminism
from pipelines.etl.fit import raw_schema
from pipelines.etl.query import check_columns_of_query, check_condition, check_query
from pipelines.runtime.compat.spark import query_execution


def analyse(spark: SparkSession, config: Config, tables: RawTables) -> tuple[str, ...]:
    """Warnings of expressions whose result may vary, each with its key in the config; `tables` are the config's.

    Raises SourceError where Spark refuses the SQL. Raises ConfigError if the query or an expectation does more than read the
    tables, or is nondeterministic. Raises it also if the config names columns that the query does not give, or that no encoder takes.
    Leaves empty temporary views behind, with the tables' names.
    """
    source = config.source
    for name, table in tables.items():
        with table_errors(table):
            table.empty(spark).createOrReplaceTempView(f"`{name}`")
    with source_errors(source, "source.query"):
        check_query(spark, source.sql, source.tables)
        rows = spark.sql(source.sql)
        check_columns_of_query(rows, config)
        check_columns(config.dataset, raw_schema(rows))
        plan = query_execution(rows).analyzed()
    refuse_nondeterminism("source.query", plan)
    query_warnings = set(plan_warnings(plan))
    warnings = [f"source.query: {warning}" for warning in sorted(query_warnings)]
    for name in source.expect:
        # The plan of the condition contains that of the query.
        new_warnings = set(_expectation_warnings(spark, config, name, rows)) - query_warnings
        warnings += [f"source.expect.{name}: {warning}" for warning in sorted(new_warnings)]
    with source_errors(source, "dataset.split"):
        splits.assign_split(splits.add_identity(rows, config.dataset.key), config.dataset.split)
    return tuple(warnings)


def _expectation_warnings(spark: SparkSession, config: Config, name: str, rows: DataFrame) -> Iterator[str]:
    key, condition = f"source.expect.{name}", config.source.expect[name]
    with source_errors(config.source, key):
        check_condition(spark, key, condition, config.source.tables)
        plan = query_execution(rows.where(F.expr(condition))).analyzed()
    refuse_nondeterminism(key, plan)
    return plan_warnings(plan)

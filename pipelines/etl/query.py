"""The config's query: checks that it only reads, checks its columns, and runs it.

It is analysed with the expectations on empty tables before any data are read: Parquet's schema comes from its footers; every other table
declares one.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.config import Config
from pipelines.config.dataset.windows import window_faults
from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.features import check_columns
from pipelines.data.features.auto.patterns import name_columns
from pipelines.data.sources.base import RawTables
from pipelines.data.sources.source_errors import source_errors, table_errors
from pipelines.errors import ConfigError
from pipelines.etl.plan_checks import plan_warnings, refuse_nondeterminism
from pipelines.etl.splits import split_assignment
from pipelines.etl.splits.split_assignment import INTERNAL, raw_schema
from pipelines.etl.splits.strata import NO_CUTS
from pipelines.etl.windows import add_windows, check_columns_read
from pipelines.runtime.compat.spark import jvm, query_execution, sql_parser
from pipelines.spark.plans import JavaObject, items, kind, nodes

# The nodes of statements that only read, in unresolved plans of Spark's parser.
_READING_NODES = {
    "Aggregate", "AsOfJoin", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin", "LocalLimit",
    "LocalRelation", "Offset", "OneRowRelation", "PipeOperator", "Pivot", "Project", "Repartition", "RepartitionByExpression", "Sample",
    "Sort", "SubqueryAlias", "Tail", "Union", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable", "UnresolvedRelation",
    "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "UnresolvedTableValuedFunction", "UnresolvedWith", "Unpivot", "Window",
    "WithWindowDefinition",
}  # fmt: skip
_VARIABLE = re.compile(r"\$\{(?:env|system|spark|sparkconf|hiveconf|hivevar):[^}]*\}")
"""Text that Spark would replace by a value of the machine."""
# The nodes of queries that cost no more than reading their tables.
_CHEAP_NODES = {
    "Project", "Filter", "Union", "SubqueryAlias", "View", "LogicalRelation", "InMemoryRelation", "LocalRelation", "LogicalRDD", "Range",
}  # fmt: skip
_NODES_OF_ONE_TABLE = _CHEAP_NODES - {"Union", "LocalRelation", "Range"}


def analyse(spark: SparkSession, config: Config, tables: RawTables) -> tuple[str, ...]:
    """Warnings of expressions whose result may vary, each with its key in the config; `tables` are the config's.

    Raises SourceError where Spark refuses the SQL. Raises ConfigError if the query or an expectation does more than read the tables, or is
    nondeterministic. Raises it also if the config names columns that the query does not give, or that no encoder takes. Leaves temporary
    views behind, with the tables' names and without rows: a table has rows once `read_tables` has read it."""
    source = config.source
    for name, table in tables.items():
        with table_errors(table):
            table.empty(spark).where(F.lit(False)).createOrReplaceTempView(f"`{name}`")
    with source_errors(source, "source.query"):
        check_query(spark, source.sql, source.tables)
        rows = spark.sql(source.sql)
        if source.windows:
            check_columns_read(rows, source.windows)
        rows = query_rows(spark, config)
        check_columns_of_query(rows, config)
        schema = raw_schema(rows)
        dataset = name_columns(config.dataset, schema)
        if source.windows and (faults := list(window_faults(source.windows, dataset))):
            raise ConfigError("\n".join(faults))
        check_columns(dataset, schema)
        plan = query_execution(rows).analyzed()
    refuse_nondeterminism("source.query", plan)
    query_warnings = {*plan_warnings(plan), *_place_warnings(spark, plan, tables)}
    warnings = [f"source.query: {warning}" for warning in sorted(query_warnings)]
    for name in source.expect:
        # The plan of the condition contains that of the query.
        key, condition = f"source.expect.{name}", source.expect[name]
        with source_errors(source, key):
            check_condition(spark, key, condition, source.tables)
            plan = query_execution(rows.where(F.expr(condition))).analyzed()
        refuse_nondeterminism(key, plan)
        warnings += [f"{key}: {warning}" for warning in sorted(set(plan_warnings(plan)) - query_warnings)]
    with source_errors(source, "dataset.split"):
        with_identity = split_assignment.add_identity(rows, config.dataset.key, config.dataset.newest)
        split_assignment.assign_split(with_identity, config.dataset.split, NO_CUTS)
    return tuple(warnings)


def _place_warnings(spark: SparkSession, plan: JavaObject, tables: RawTables) -> Iterator[str]:
    """Columns of whole files that the query hands on, though a copy of the files has others."""
    other_tables = [name for name, table in tables.items() if table.settings.format != "binaryFile"]
    if len(other_tables) < len(tables) and kind(plan) == "Project":
        names = {expression.name() for expression in items(plan.projectList()) if kind(expression) == "AttributeReference"}
        names -= {column for name in other_tables for column in spark.table(f"`{name}`").columns}
        if "path" in names:
            yield (
                "path is another one where the files are copied to, and so is the dataset; take their name, such as "
                "regexp_extract(path, '[^/]+$', 0)"
            )
        if "modificationTime" in names:
            yield "modificationTime is another one where the files are copied to, and so is the dataset; leave it out"


def check_query(spark: SparkSession, sql: str, tables: Collection[str]) -> None:
    """Raises ConfigError if `sql` does anything but read the `tables`; Spark's ParseException if it is no SQL. Nothing is run."""
    _check_variables("source.query", sql)
    _check_reading("source.query", sql_parser(spark).parsePlan(sql), tables)


def check_condition(spark: SparkSession, key: str, condition: str, tables: Collection[str]) -> None:
    """Raise the errors of `check_query` for the subqueries of the condition at `key` of the config."""
    _check_variables(key, condition)
    plans = jvm().org.apache.spark.sql.catalyst.plans.logical
    _check_reading(key, plans.Filter(sql_parser(spark).parseExpression(condition), plans.OneRowRelation()), tables)


def run_query(spark: SparkSession, config: Config, is_deterministic: bool) -> DataFrame:
    """The query's rows, which fitting and writing both read: they are persisted if they are expensive to compute, or if the query is
    not deterministic."""
    rows = query_rows(spark, config)
    is_cheap = is_deterministic and all(kind(node) in _CHEAP_NODES for node in nodes(query_execution(rows).withCachedData()))
    return rows if is_cheap else rows.persist()


def reads_one_table(rows: DataFrame) -> bool:
    """Whether a query that is not persisted gives each row of one table at most once."""
    return not rows.is_cached and all(kind(node) in _NODES_OF_ONE_TABLE for node in nodes(query_execution(rows).withCachedData()))


def query_rows(spark: SparkSession, config: Config) -> DataFrame:
    """The query's rows with the columns of `source.windows`."""
    rows, windows = spark.sql(config.source.sql), config.source.windows
    return add_windows(rows, windows, config.dataset.split) if windows else rows


def check_columns_of_query(rows: DataFrame, config: Config) -> None:
    """Raises ConfigError if two columns have one name or a name that cannot be used, or if the config names columns that are not there."""
    lower = Counter(name.lower() for name in rows.columns)
    if repeated := sorted(name for name, times in lower.items() if times > 1):
        raise ConfigError(f"source.query gives {name_list(repeated)} more than once; name its columns apart with AS")
    if unusable := sorted(name for name in rows.columns if set("`.") & set(name)):
        names_given = name_list(unusable)
        raise ConfigError(f"source.query gives {names_given}; Spark hands no name with a dot or a backtick to Python, so rename it with AS")
    if reserved := set(lower).intersection(INTERNAL):
        raise ConfigError(f"source.query gives {', '.join(sorted(reserved))}, a name that ETL needs; rename it with AS")
    columns_of_config = [("dataset.key", name) for name in config.dataset.key] + [("dataset.newest", config.dataset.newest)]
    columns_of_config += [
        (f"dataset.split.{field}", getattr(config.dataset.split, field, "")) for field in ("by", "time", "group", "stratify")
    ]
    if faults := [(key, name) for key, name in columns_of_config if name and name not in rows.columns]:
        raise ConfigError(
            "\n".join(f"{key}: the query gives no column {name}; it gives {name_list(rows.columns, name)}" for key, name in faults)
        )


def _check_variables(key: str, sql: str) -> None:
    if variable := _VARIABLE.search(sql):
        raise ConfigError(f"{key}: {variable[0]} would be a value of the machine that runs it, and is not replaced; write the value out")


def _check_reading(key: str, plan: JavaObject, tables: Collection[str]) -> None:
    plan_nodes = list(nodes(plan))
    if statement_kind := next((kind(node) for node in plan_nodes if kind(node) not in _READING_NODES), None):
        statement = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", statement_kind.removeprefix("Unresolved").removesuffix("Command")).upper()
        raise ConfigError(f"{key}: {statement} is not part of a query; only what reads the tables may stand here, such as SELECT")
    readable = {name.lower() for name in tables}
    readable |= {alias.alias().lower() for node in plan_nodes if kind(node) == "UnresolvedWith" for alias in items(node.innerChildren())}
    for node in plan_nodes:
        if kind(node) == "UnresolvedRelation":
            name = ".".join(items(node.multipartIdentifier()))
            if name.lower() not in readable:
                hint = suggestion(name, tables, f"choose one of {name_list(tables)}." if tables else "it is empty.")
                raise ConfigError(
                    f"{key}: source.tables has no {name}; {hint} A query reads only the tables named there, which have checksums"
                )

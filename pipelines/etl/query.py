"""Runs the config's query, and says what in it may give other rows the next time."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.config import Config
from pipelines.errors import ConfigError
from pipelines.etl.order import INTERNAL

JavaObject = Any
"""Spark's own plans and expressions, which have no Python side."""

# Floating point sums depend on the order of their terms; of these, sum and avg of whole numbers do not.
_SUMS = {"sum", "avg", "try_sum", "try_avg"}
_FLOAT_AGGREGATES = {
    "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "std", "corr", "covar_pop", "covar_samp",
    "skewness", "kurtosis", "regr_r2", "regr_slope", "regr_intercept", "regr_sxx", "regr_sxy", "regr_syy",
    "approx_percentile", "percentile_approx",
}  # fmt: skip
# Aggregates that take what comes first, which Spark does not call nondeterministic.
_ORDERED = {
    "first", "first_value", "last", "last_value", "any_value", "collect_list", "collect_set", "array_agg", "listagg", "string_agg", "mode",
}  # fmt: skip
_SORTS = {"array_sort", "sort_array"}
_CLOCK = {"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now"}
_CUTS = {"GlobalLimit", "LocalLimit", "Offset", "Tail"}
# The nodes of a query that costs no more than reading its table.
_CHEAP = {
    "Project", "Filter", "Union", "SubqueryAlias", "View", "LogicalRelation", "InMemoryRelation", "LocalRelation", "LogicalRDD", "Range",
}  # fmt: skip


def run_query(spark: SparkSession, config: Config) -> tuple[DataFrame, tuple[str, ...]]:
    """The query's rows, and warnings. Rows that are dear to compute, or may differ when computed again, are persisted:
    fitting and writing both read them.

    Raises ConfigError if two columns have one name, or if the config names columns that are not there.
    """
    rows = spark.sql(config.source.sql)
    _check_names(rows, config)
    execution = rows._jdf.queryExecution()
    warnings = tuple(dict.fromkeys(_warnings(execution.analyzed())))
    return (rows if _cheap(execution.withCachedData()) else rows.persist()), warnings


def _check_names(rows: DataFrame, config: Config) -> None:
    lower = [name.lower() for name in rows.columns]
    if twice := sorted({name for name in lower if lower.count(name) > 1}):
        raise ConfigError(f"source.query gives {', '.join(twice)} more than once; name its columns apart with AS")
    if unquoted := sorted(name for name in rows.columns if set("`.") & set(name)):
        given = ", ".join(unquoted)
        raise ConfigError(f"source.query gives {given}; Spark hands no name with a dot or a backtick to Python, so rename it with AS")
    if taken := set(lower).intersection(INTERNAL):
        raise ConfigError(f"source.query gives {', '.join(sorted(taken))}, a name that ETL needs; rename it with AS")
    wanted = [("dataset.key", name) for name in config.dataset.key]
    wanted += [(f"dataset.split.{field}", getattr(config.dataset.split, field, "")) for field in ("by", "time", "group")]
    if faults := [(key, name) for key, name in wanted if name and name not in rows.columns]:
        given = ", ".join(rows.columns)
        raise ConfigError("\n".join(f"{key}: the query gives no column {name}; it gives {given}" for key, name in faults))


def _nodes(plan: JavaObject) -> Iterator[JavaObject]:
    """A logical plan's nodes, root first."""
    yield plan
    for below in _below(plan):
        yield from _nodes(below)


def _below(plan: JavaObject) -> Iterator[JavaObject]:
    yield from _items(plan.children())
    yield from _items(plan.subqueries())


def _items(found: JavaObject) -> Iterator[JavaObject]:
    for index in range(found.size()):
        yield found.apply(index)


def _kind(node: JavaObject) -> str:
    return node.getClass().getSimpleName()


def _cheap(plan: JavaObject) -> bool:
    return bool(plan.deterministic()) and all(_kind(node) in _CHEAP for node in _nodes(plan))


def _warnings(plan: JavaObject) -> Iterator[str]:
    kind = _kind(plan)
    if kind in _CUTS and not _sorted_below(plan):
        yield "LIMIT or OFFSET without ORDER BY takes any rows; order them by a unique key first"
    if kind == "Sample":
        yield "TABLESAMPLE depends on how the files are cut; take a share of the rows by xxhash64(key) in a WHERE"
    for expression in _items(plan.expressions()):
        yield from _expression_warnings(expression)
    for below in _below(plan):
        yield from _warnings(below)


def _sorted_below(plan: JavaObject) -> bool:
    while _kind(plan) in _CUTS | {"Project", "SubqueryAlias"}:
        plan = plan.children().apply(0)
    return _kind(plan) == "Sort"


def _expression_warnings(expression: JavaObject) -> Iterator[str]:
    kind = _kind(expression)
    if kind in ("AttributeReference", "Literal"):
        return
    if kind == "WindowExpression" and not expression.windowSpec().orderSpec().isEmpty():
        window = expression.windowSpec()
        parts = [*_arguments(expression.windowFunction()), *_items(window.partitionSpec()), *_items(window.orderSpec())]
        yield from (warning for part in parts for warning in _expression_warnings(part))
        return
    children = list(_items(expression.children()))
    if expression.prettyName() in _SORTS:
        children = [of for child in children for of in _sorted(child)]
    yield from (warning for child in children for warning in _expression_warnings(child))
    name = expression.prettyName()
    if kind in _CLOCK:
        yield f"{name}() is another value in every run; write the date out"
    elif name in _ORDERED or (not expression.deterministic() and all(child.deterministic() for child in children)):
        yield f"{name}() depends on the order of rows or on chance; take a function of the row's values alone"
    elif name in _FLOAT_AGGREGATES or (name in _SUMS and any(_float(child) for child in children)):
        yield f"{name} of floating point numbers depends on the order of rows in its last digits; CAST them to DECIMAL, or round the result"


def _arguments(function: JavaObject) -> Iterator[JavaObject]:
    """Of a function over a window. The window's ORDER BY settles what the function itself takes first."""
    return _items((function.aggregateFunction() if _kind(function) == "AggregateExpression" else function).children())


def _sorted(expression: JavaObject) -> Iterator[JavaObject]:
    """An expression whose result is sorted: an aggregate that collects is then none that goes by the order of rows."""
    aggregate = _kind(expression) == "AggregateExpression" and expression.children().apply(0)
    yield from _items(aggregate.children()) if aggregate and aggregate.prettyName() in ("collect_list", "array_agg") else [expression]


def _float(expression: JavaObject) -> bool:
    return expression.dataType().typeName() in ("double", "float")

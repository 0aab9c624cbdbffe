"""What in a plan gives another result when it is computed again: refused where that is chance, else warned of.

A row's hash decides its split and its part, and a condition whether it is kept: what is computed twice must be the same
twice. Spark knows of each expression whether it is `deterministic`.
"""

from collections.abc import Iterator

from pipelines.errors import ConfigError
from pipelines.etl.plans import JavaObject, below_of, items, kind, nodes

# Draws its initialisation vector, and Spark takes it for deterministic.
_DRAWS = {"aes_encrypt"}
_SUBQUERIES = {"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"}
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


def refuse_chance(key: str, plan: JavaObject) -> None:
    """Raises ConfigError naming what in the plan of the config's `key` goes by chance, or by how rows are dealt to tasks."""
    if names := sorted({name for node in nodes(plan) for name in _chances(node)}):
        raise ConfigError(
            f"{key}: {', '.join(names)} may give another result each time it is computed, and rows would be lost or come twice; "
            "take a function of the row's values alone, such as xxhash64(id) % 100 < 10"
        )


def _chances(node: JavaObject) -> Iterator[str]:
    if kind(node) == "Sample":
        yield "TABLESAMPLE"
    for expression in items(node.expressions()):
        yield from _drawn(expression)


def _drawn(expression: JavaObject) -> Iterator[str]:
    """The functions of an expression that are not deterministic by themselves. Subqueries are nodes of their own."""
    children = list(items(expression.children()))
    for child in children:
        yield from _drawn(child)
    name = expression.prettyName().lower()
    by_itself = not expression.deterministic() and all(child.deterministic() for child in children)
    if name in _DRAWS or (by_itself and kind(expression) not in _SUBQUERIES):
        yield f"{name}()"


def warnings_of(plan: JavaObject) -> Iterator[str]:
    """What in a plan may come out otherwise the next time."""
    if kind(plan) in _CUTS and not _is_sorted(plan):
        yield "LIMIT or OFFSET without ORDER BY takes any rows; order them by a unique key first"
    for expression in items(plan.expressions()):
        yield from _expression_warnings(expression)
    for below in below_of(plan):
        yield from warnings_of(below)


def _is_sorted(plan: JavaObject) -> bool:
    while kind(plan) in _CUTS | {"Project", "SubqueryAlias"}:
        plan = plan.children().apply(0)
    return kind(plan) == "Sort"


def _expression_warnings(expression: JavaObject) -> Iterator[str]:
    if kind(expression) in ("AttributeReference", "Literal"):
        return
    if kind(expression) == "WindowExpression" and not expression.windowSpec().orderSpec().isEmpty():
        window = expression.windowSpec()
        parts = [*_arguments(expression.windowFunction()), *items(window.partitionSpec()), *items(window.orderSpec())]
        yield from (warning for part in parts for warning in _expression_warnings(part))
        return
    children = list(items(expression.children()))
    if expression.prettyName() in _SORTS:
        children = [of for child in children for of in _sorted(child)]
    yield from (warning for child in children for warning in _expression_warnings(child))
    name = expression.prettyName()
    if kind(expression) in _CLOCK:
        yield f"{name}() is another value in every run; write the date out"
    elif name in _ORDERED:
        yield f"{name}() depends on the order of rows; take a function of the row's values alone"
    elif name in _FLOAT_AGGREGATES or (name in _SUMS and any(_float(child) for child in children)):
        yield f"{name} of floating point numbers depends on the order of rows in its last digits; CAST them to DECIMAL, or round the result"


def _arguments(function: JavaObject) -> Iterator[JavaObject]:
    """Of a function over a window. The window's ORDER BY settles what the function itself takes first."""
    return items((function.aggregateFunction() if kind(function) == "AggregateExpression" else function).children())


def _sorted(expression: JavaObject) -> Iterator[JavaObject]:
    """An expression whose result is sorted: an aggregate that collects is then none that goes by the order of rows."""
    aggregate = kind(expression) == "AggregateExpression" and expression.children().apply(0)
    yield from items(aggregate.children()) if aggregate and aggregate.prettyName() in ("collect_list", "array_agg") else [expression]


def _float(expression: JavaObject) -> bool:
    return expression.dataType().typeName() in ("double", "float")

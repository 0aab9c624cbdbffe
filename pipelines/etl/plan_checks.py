"""Finds expressions in a plan whose result may vary: nondeterministic functions are refused, others cause a warning. And says where a query
makes numbers of text.

A row's hash decides its split and its part, and a condition whether it is kept, so computing a row twice must give the same
values. Spark marks each expression as `deterministic` or not.

Spark casts text to numbers by its rules and Java's: 12D, 0x1p4 and NaN are numbers there. In raw tables
`pipelines.data.sources.text.type_checks` says what a number is. A query is the user's, and is not changed: ETL says what it does.
"""

import logging
import re
from collections.abc import Iterator

from pipelines.errors import ConfigError
from pipelines.spark.plans import JavaObject, child_plans, items, kind, nodes

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\b(tinyint|smallint|int|bigint|float|double|decimal)\b")
_MOST_SHOWN = 5
_UNNAMED = "__auto_generated_subquery_name."
"""Spark's name for a SELECT in parentheses that has none."""
_TAKES = (
    "casts of text: float and double take 12D, 0x1p4, NaN and 1e400, and decimal digits of any script; all of them, as whole numbers do, "
    "blanks around"
)
# It draws a random initialisation vector, but Spark marks it as deterministic.
_RANDOM = {"aes_encrypt"}
_FILE_FUNCTIONS = {"input_file_name()", "input_file_block_start()", "input_file_block_length()"}
_SUBQUERIES = {"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"}
# Floating-point sums depend on the order of their terms; sum and avg of integers do not.
_SUMS = {"sum", "avg", "try_sum", "try_avg"}
_FLOAT_AGGREGATES = {
    "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "std", "corr", "covar_pop", "covar_samp",
    "skewness", "kurtosis", "regr_r2", "regr_slope", "regr_intercept", "regr_sxx", "regr_sxy", "regr_syy",
    "approx_percentile", "percentile_approx",
}  # fmt: skip
# Aggregates that depend on the order of rows, which Spark does not mark as nondeterministic.
_ORDERED = {
    "first", "first_value", "last", "last_value", "any_value", "collect_list", "collect_set", "array_agg", "listagg", "string_agg", "mode",
    "max_by", "min_by", "histogram_numeric",
}  # fmt: skip
_SORTS = {"array_sort", "sort_array"}
_CLOCK = {"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now"}
# Values of the session, and of whoever runs it.
_SESSION = {"current_user", "user", "session_user", "current_catalog", "current_database", "current_schema", "current_timezone"}
_SEPARATOR = "\0"
"""A character that no expression's text contains, unless a literal does."""
_LIMITS = {"GlobalLimit", "LocalLimit", "Offset", "Tail"}


def refuse_nondeterminism(key: str, plan: JavaObject) -> None:
    """Raises ConfigError naming the functions in the plan of the config's `key` that are random or depend on the partitioning."""
    names_of_calls = set()
    for node in nodes(plan):
        names_of_calls |= {"TABLESAMPLE"} if kind(node) == "Sample" else set()
        names_of_calls |= {name for expression in _expressions_with_calls(node) for name in _nondeterministic_functions(expression)}
    names = sorted(names_of_calls)
    if set(names) & _FILE_FUNCTIONS:
        raise ConfigError(
            f"{key}: {', '.join(names)} is of the file that Spark happens to read, which no query of a cached table has; "
            "set file_column of the table to a name, and select that column"
        )
    if names:
        raise ConfigError(
            f"{key}: {', '.join(names)} may give another result each time it is computed, and rows would be lost or come twice; "
            "take a function of the row's values alone, such as pmod(xxhash64(id), 100) < 10"
        )


def _expressions_with_calls(node: JavaObject) -> Iterator[JavaObject]:
    """The expressions of a plan's node that call a function: their text has a bracket. Texts are fetched at once, since each call of Java
    takes a while, and a table of thousands of columns has an expression for each."""
    expressions = node.expressions()
    texts = expressions.mkString(_SEPARATOR).split(_SEPARATOR)
    for index, text in enumerate(texts if len(texts) == expressions.size() else ["("] * expressions.size()):
        if "(" in text:
            yield expressions.apply(index)


def _nondeterministic_functions(expression: JavaObject) -> Iterator[str]:
    """The nondeterministic functions of an expression. Subqueries are separate nodes."""
    children = list(items(expression.children()))
    for child in children:
        yield from _nondeterministic_functions(child)
    name = expression.prettyName().lower()
    is_cause = not expression.deterministic() and all(child.deterministic() for child in children)
    if name in _RANDOM or (is_cause and kind(expression) not in _SUBQUERIES):
        yield f"{name}()"


def plan_warnings(plan: JavaObject) -> Iterator[str]:
    """The expressions of a plan whose result may vary."""
    if kind(plan) in _LIMITS and not _is_sorted(plan):
        yield "LIMIT or OFFSET without ORDER BY takes any rows; order them by a unique key first"
    for expression in _expressions_with_calls(plan):
        yield from _expression_warnings(expression)
    for child in child_plans(plan):
        yield from plan_warnings(child)


def _is_sorted(plan: JavaObject) -> bool:
    while kind(plan) in _LIMITS | {"Project", "SubqueryAlias"}:
        plan = plan.children().apply(0)
    return kind(plan) == "Sort"


def _nodes_below_sort(expression: JavaObject) -> Iterator[JavaObject]:
    """The nodes below a sort, without an aggregate that collects: sorting makes its result independent of the order of rows."""
    aggregate = kind(expression) == "AggregateExpression" and expression.children().apply(0)
    yield from items(aggregate.children()) if aggregate and aggregate.prettyName() in ("collect_list", "array_agg") else [expression]


def _expression_warnings(expression: JavaObject) -> Iterator[str]:
    if kind(expression) in ("AttributeReference", "Literal"):
        return
    if kind(expression) == "WindowExpression" and not expression.windowSpec().orderSpec().isEmpty():
        # The window's ORDER BY decides which row is first, so that only the arguments of its function may vary.
        window, function = expression.windowSpec(), expression.windowFunction()
        function = function.aggregateFunction() if kind(function) == "AggregateExpression" else function
        parts = [*items(function.children()), *items(window.partitionSpec()), *items(window.orderSpec())]
        yield from (warning for part in parts for warning in _expression_warnings(part))
        return
    name, children = expression.prettyName(), list(items(expression.children()))
    if name in _SORTS:
        children = [node for child in children for node in _nodes_below_sort(child)]
    yield from (warning for child in children for warning in _expression_warnings(child))
    if kind(expression) in _CLOCK:
        yield f"{name}() is another value in every run; write the date out"
    elif name in _SESSION:
        yield f"{name}() depends on who runs it, and where; write the value out"
    elif name in _ORDERED:
        yield f"{name}() depends on the order of rows; take a function that does not, such as max(), or array_sort() of collect_list()"
    elif name in _FLOAT_AGGREGATES or (name in _SUMS and any(child.dataType().typeName() in ("double", "float") for child in children)):
        yield f"{name} of floating point numbers depends on the order of rows in its last digits; CAST them to DECIMAL, or round the result"


def text_cast_notes(plan: JavaObject) -> tuple[str, ...]:
    """A note on the casts in an analysed plan; empty if there are none."""
    casts = sorted({cast for node in _query_nodes(plan) for expression in items(node.expressions()) for cast in _text_casts(expression)})
    if not casts:
        return ()
    log.debug("%s", _TAKES)
    names = ", ".join(casts[:_MOST_SHOWN]) + (f" and {len(casts) - _MOST_SHOWN} more" if len(casts) > _MOST_SHOWN else "")
    return (
        f"source.query: {names}: a cast of text takes more than digits; to refuse the rest, "
        "declare the column as a number in the table's schema",
    )


def _query_nodes(plan: JavaObject) -> Iterator[JavaObject]:
    """The nodes of the query itself, without those that read its tables."""
    yield plan
    if kind(plan) != "View":
        for child in child_plans(plan):
            yield from _query_nodes(child)


def _text_casts(expression: JavaObject) -> Iterator[str]:
    for child in items(expression.children()):
        yield from _text_casts(child)
    if kind(expression) != "Cast" or expression.child().foldable():
        return
    source, target = expression.child().dataType().catalogString(), expression.dataType().catalogString()
    if "string" in source and _NUMBER.search(target):
        child = expression.child()
        text = child.name() if kind(child) == "NamedLambdaVariable" else child.sql()
        yield f"{text.replace(_UNNAMED, '')} AS {target}"

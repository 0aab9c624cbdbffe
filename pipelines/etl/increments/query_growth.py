"""Finds out whether the new rows of a query follow from the new rows of its tables alone: then earlier rows of the query stay as they are.

That holds of every node that gives rows for single rows, such as WHERE, SELECT, LATERAL VIEW and UNION ALL, and of joins of new rows with
tables that have none, on the side whose rows all stay. It does not hold of aggregates, windows, DISTINCT and LIMIT of new rows: there, one
new row may change earlier rows. Nor does it hold of what UNION ALL puts beside new rows, if that has rows although its tables are empty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.config.messages.words import name_list
from pipelines.config.source.source import Source
from pipelines.data.sources.base import NoIncrementError
from pipelines.runtime.compat.spark import query_execution
from pipelines.spark.plans import JavaObject, items, kind, nodes

_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias", "Generate", "ResolvedHint", "Repartition", "RepartitionByExpression", "Sort"}
_EMPTY_OF_EMPTY = {*_ROW_BY_ROW, "Join", "Union"}
"""Nodes that have no rows where their tables have none, unlike an aggregate."""
_CONSTANT = {"OneRowRelation", "LocalRelation", "Range"}
_GROWING_SIDES = {
    **dict.fromkeys(("INNER", "CROSS"), ("left", "right")),
    **dict.fromkeys(("LEFT OUTER", "LEFT SEMI", "LEFT ANTI"), ("left",)),
    "RIGHT OUTER": ("right",),
}
"""By type of join, the sides that new rows may come to without a change of earlier rows of the join."""


@dataclass(frozen=True)
class QueryGrowth:
    """The tables that a part of a plan reads."""

    is_grown: bool = False
    """Whether tables with new rows are among it."""
    unchanged: frozenset[str] = frozenset()
    """Tables without new rows."""
    in_full: frozenset[str] = frozenset()
    """Those of them whose rows are joined with new ones, and have to be read."""
    skipped: frozenset[str] = frozenset()
    """Those whose rows are already in the parent, and must not come again."""
    may_repeat: bool = False
    """Whether it may have rows although its tables have none, as a list of values has, or an aggregate."""


def check_growth(spark: SparkSession, source: Source, grown: frozenset[str]) -> frozenset[str]:
    """The unchanged tables that have to be read in full for the new rows of the query; all other unchanged tables are to be empty. `grown`
    are the tables with new rows. The views of all tables are registered. Raises NoIncrementError if earlier rows may change."""
    if source.windows:
        raise NoIncrementError("source.windows reads rows of other times, and those of new rows are among the earlier ones")
    rows = spark.sql(source.sql)
    growth = _follow(query_execution(rows).analyzed(), frozenset(name.lower() for name in grown), {})
    if not growth.is_grown:
        raise NoIncrementError(f"source.query does not read {name_list(sorted(grown))}, whose rows are new")
    plan_nodes = len(list(nodes(query_execution(rows).analyzed())))
    for name, condition in source.expect.items():
        if len(list(nodes(query_execution(rows.where(F.expr(condition))).analyzed()))) > plan_nodes + 1:
            raise NoIncrementError(f"source.expect.{name} reads a table, so that new rows may change what it says of earlier ones")
    if both := growth.in_full & growth.skipped:
        raise NoIncrementError(f"source.query reads {name_list(sorted(both))} both in a join with new rows and beside them")
    return frozenset(name for name in source.tables if name.lower() in growth.in_full)


def _follow(node: JavaObject, grown: frozenset[str], ctes: Mapping[int, QueryGrowth]) -> QueryGrowth:
    """The tables that a node reads. Raises NoIncrementError if it may change earlier rows. `ctes` are the queries of WITH, by number."""
    match kind(node):
        case "View":
            name = str(node.desc().identifier().table()).lower()
            return QueryGrowth(is_grown=True) if name in grown else QueryGrowth(unchanged=frozenset({name}))
        case "WithCTE":
            for definition in items(node.cteDefs()):
                ctes = {**ctes, definition.id(): _follow(definition.child(), grown, ctes)}
            return _follow(node.plan(), grown, ctes)
        case "CTERelationRef":
            return ctes[node.cteId()]
        case name if name in _CONSTANT:
            return QueryGrowth(may_repeat=True)
    inputs = [_follow(child, grown, ctes) for child in items(node.children())]
    subqueries = [_follow(subquery, grown, ctes) for subquery in items(node.subqueries())]
    if any(subquery.is_grown for subquery in subqueries):
        raise NoIncrementError("source.query has a subquery over new rows, which may change what it says of earlier ones")
    read_by_subqueries = frozenset().union(*(subquery.unchanged for subquery in subqueries))
    growth = reduce(_merge, [*inputs, QueryGrowth(in_full=read_by_subqueries)], QueryGrowth())
    if growth.is_grown:
        return _merge(growth, _combine(node, inputs))
    return _merge(growth, QueryGrowth(unchanged=read_by_subqueries, may_repeat=kind(node) not in _EMPTY_OF_EMPTY))


def _combine(node: JavaObject, inputs: Sequence[QueryGrowth]) -> QueryGrowth:
    """The demands of a node on the unchanged tables among its inputs, of which one or more are grown. Raises NoIncrementError if new rows
    may change earlier ones."""
    match kind(node):
        case "Union":
            unchanged = [part for part in inputs if not part.is_grown]
            if any(part.may_repeat for part in unchanged):
                raise NoIncrementError(
                    "source.query unites new rows, by UNION ALL, with VALUES or an aggregate of other tables: rows that would come again"
                )
            return QueryGrowth(skipped=frozenset().union(*(part.unchanged for part in unchanged)))
        case "Join":
            left_input, right_input = inputs
            growing, unchanged_side = ("left", right_input) if left_input.is_grown else ("right", left_input)
            join = str(node.joinType().sql())
            if (left_input.is_grown and right_input.is_grown) or growing not in _GROWING_SIDES.get(join, ()):
                raise NoIncrementError(f"source.query has a {join} JOIN in which new rows may change earlier ones")
            return QueryGrowth(in_full=unchanged_side.unchanged)
        case name if name in _ROW_BY_ROW:
            return QueryGrowth()
    raise NoIncrementError(f"source.query takes several rows together ({kind(node)}), so that new rows may change earlier ones")


def _merge(first: QueryGrowth, second: QueryGrowth) -> QueryGrowth:
    return QueryGrowth(
        first.is_grown or second.is_grown,
        first.unchanged | second.unchanged,
        first.in_full | second.in_full,
        first.skipped | second.skipped,
        first.may_repeat or second.may_repeat,
    )

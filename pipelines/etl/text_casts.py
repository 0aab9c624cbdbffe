"""Casts of text to numbers in the query, which Spark makes by its rules and Java's: 12D, 0x1p4 and NaN are numbers there.

In raw tables `pipelines.data.sources.text.numbers` says what a number is. A query is the user's, and is not changed: ETL says what it does.
"""

import logging
import re
from collections.abc import Iterator

from pipelines.spark.plans import JavaObject, child_plans, items, kind

log = logging.getLogger(__name__)

_NUMBER = re.compile(r"\b(tinyint|smallint|int|bigint|float|double|decimal)\b")
_MOST_SHOWN = 5
_UNNAMED = "__auto_generated_subquery_name."
"""Spark's name for a SELECT in parentheses that has none."""
_TAKES = (
    "casts of text: float and double take 12D, 0x1p4, NaN and 1e400, and decimal digits of any script; all of them, as whole numbers do, "
    "blanks around"
)


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

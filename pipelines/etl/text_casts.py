"""Casts of text to fractions in the query, which Spark makes by Java's rules: 12D, 0x1p4 and NaN are numbers there.

In raw tables `pipelines.sources.numbers` says what a number is. A query is the user's, and is not changed: ETL says what it does.
"""

from collections.abc import Iterator

from pipelines.etl.plans import JavaObject, items, kind, nodes

_FRACTIONS = ("double", "float", "decimal")
_MOST_SHOWN = 5


def text_cast_notes(plan: JavaObject) -> tuple[str, ...]:
    """What is to be said of the casts in an analysed plan; nothing if there are none."""
    casts = sorted({cast for node in nodes(plan) for expression in items(node.expressions()) for cast in _text_casts(expression)})
    if not casts:
        return ()
    shown = ", ".join(casts[:_MOST_SHOWN]) + (f" and {len(casts) - _MOST_SHOWN} more" if len(casts) > _MOST_SHOWN else "")
    return (
        f"source.query: {shown}: a cast of text takes what Java takes for a number, such as 12D, 0x1p4 or NaN; if the text may hold "
        "such, declare the column as a number in the table's schema",
    )


def _text_casts(expression: JavaObject) -> Iterator[str]:
    for child in items(expression.children()):
        yield from _text_casts(child)
    if kind(expression) != "Cast" or expression.child().foldable():
        return
    source, target = expression.child().dataType().typeName(), expression.dataType().typeName()
    if source == "string" and target.startswith(_FRACTIONS):
        yield f"{expression.child().sql()} AS {target}"

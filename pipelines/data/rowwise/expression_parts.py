"""The subexpressions of an expression, and the casts among them.

Values of a sample rarely reveal that one engine uses decimals and the other floats: the types of all subexpressions have to agree.
"""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.types as types
from sqlglot import exp

from pipelines.data.rowwise.translate import DIALECT, is_number_of_text, to_duckdb_sql
from pipelines.data.rowwise.untranslatable import UntranslatableError

_CONSTANT = (exp.Literal, exp.Null, exp.Boolean)
_CASTS = {
    "whole": {"whole", "floating", "text"}, "truth": {"truth", "whole", "text"}, "floating": {"floating"}, "text": {"text"},
    "date": {"date", "text"},
}  # fmt: skip
"""Casts between kinds of types. A sample cannot show that two engines agree on all formats and roundings of numbers."""
_OF_ONE_SORT = (exp.Concat, exp.DPipe, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.In, exp.Between)
"""Operators whose operands must all be text, or none: otherwise an engine casts some."""


def subexpressions(expressions: Iterable[exp.Expr]) -> dict[str, str]:
    """All subexpressions except constants, as Spark's SQL and as DuckDB's."""
    return {part.sql(dialect=DIALECT): to_duckdb_sql(part) for expression in expressions for part in _walk_computed(expression)}


def check_casts(expressions: Iterable[exp.Expr], kinds: Mapping[str, pa.DataType], columns: pa.Schema) -> None:
    """Raise UntranslatableError for a cast whose result depends on the engine. `kinds` are the subexpressions' types, by Spark's SQL."""

    def sort(node: exp.Expr) -> str:
        return _sort(columns.field(node.name).type if isinstance(node, exp.Column) else kinds[node.sql(dialect=DIALECT)])

    for part in (part for expression in expressions for part in _walk_computed(expression)):
        sorts = {sort(operand) for operand in _operands(part)}
        if isinstance(part, exp.Cast):
            wrong = not is_number_of_text(part) and any(sort(part) not in _CASTS.get(operand, ()) for operand in sorts)
        else:
            wrong = isinstance(part, _OF_ONE_SORT) and len({operand == "text" for operand in sorts}) > 1
        if wrong:
            raise UntranslatableError(f"{part.sql(dialect=DIALECT)[:60]} casts as each engine does")


def _walk_computed(expression: exp.Expr) -> Iterator[exp.Expr]:
    passed = (*_CONSTANT, exp.Column, exp.Paren, exp.Identifier, exp.DataType, exp.DataTypeParam, exp.Tuple)
    for node in expression.walk():
        if not isinstance(node, passed) and not (isinstance(node, exp.If) and isinstance(node.parent, exp.Case)):
            yield node


def _operands(part: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of a node except constants; none for a Case."""
    for child in (child.unnest() for child in part.iter_expressions()):
        if not isinstance(child, (*_CONSTANT, exp.DataType, exp.Tuple)) and not isinstance(part, exp.Case):
            yield child


def _sort(kind: pa.DataType) -> str:
    sorts = {
        "whole": types.is_integer,
        "truth": types.is_boolean,
        "floating": types.is_floating,
        "text": types.is_string,
        "date": types.is_date,
    }
    return next((name for name, is_sort in sorts.items() if is_sort(kind)), str(kind))

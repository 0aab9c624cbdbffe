"""Translates Spark's SQL over raw tables to a DuckDB expression for each column of the query.

The query is parsed in the Databricks dialect, which is Spark's with ANSI mode, as in ETL. Only functions and operators that are known
to have the same meaning in both engines are translated; ETL then compares their values.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, count

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pipelines.data.rowwise.untranslatable import UntranslatableError

DIALECT = "databricks"
Expression = exp.Expr
_KNOWN = (
    exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.If,
    exp.Case, exp.Coalesce, exp.Nullif, exp.Nvl2, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Abs, exp.Sqrt, exp.Greatest,
    exp.Least, exp.Length, exp.Substring, exp.StartsWith, exp.EndsWith, exp.Contains, exp.StrPosition, exp.Trim, exp.Concat, exp.DPipe,
    exp.IsNan, exp.Replace, exp.Column, exp.Tuple,
)  # fmt: skip
_TYPES = {
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL,
    exp.DType.BOOLEAN, exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.DATE,
}  # fmt: skip
"""No types with a time of day: the time zone would be that of the serving process."""
_SELECT = {"with_", "expressions", "from_", "where"}


@dataclass(frozen=True)
class Rowwise:
    """A query that makes at most one row from each row of one table."""

    table: str
    columns: dict[str, exp.Expr]
    """Expressions of raw columns, by name in lower case, in the query's order."""
    conditions: dict[str, exp.Expr]
    """The conditions of its WHEREs on raw columns, by their SQL; repeated SQL gets a number."""

    def condition(self, text: str) -> exp.Expr:
        """A condition on the query's columns, as an expression of raw columns."""
        return _inlined(_parsed(text), self.columns, "")


def rowwise(sql: str, tables: Mapping[str, Iterable[str]]) -> list[Rowwise]:
    """The branches of its UNION ALL, usually one. `tables` are the raw tables' columns. Raises UntranslatableError."""
    known = {name.lower(): [Rowwise(name, {column.lower(): _column(column) for column in columns}, {})] for name, columns in tables.items()}
    return _branches(_parsed(sql), known)


def columns_named(sql: str) -> set[str]:
    """The columns that SQL reads by name from its tables, as far as it can be parsed: those that it does not define itself."""
    try:
        query = _parsed(sql)
    except UntranslatableError:
        return set()
    made = {item.alias.lower() for item in query.find_all(exp.Alias)}
    left_out = {column.name for star in query.find_all(exp.Star) for column in star.args.get("except_") or ()}
    return {name for name in {column.name for column in query.find_all(exp.Column)} | left_out if name and name.lower() not in made}


def sql_of(expression: exp.Expr) -> str:
    """The node as DuckDB's SQL. Raises UntranslatableError if it is not known to have the same meaning there."""
    for node in expression.walk():
        if not isinstance(node, _KNOWN) or (isinstance(node, exp.DataType) and node.this not in _TYPES):
            raise UntranslatableError(f"{node.sql(dialect=DIALECT)[:60]} may be another value without Spark")
    return _duckdb(expression)


def columns_in(expression: exp.Expr) -> set[str]:
    """The raw columns that an expression reads."""
    return {column.name for column in expression.find_all(exp.Column)}


def literals_in(expression: exp.Expr) -> set[str]:
    return {literal.name for literal in expression.find_all(exp.Literal)}


def _parsed(sql: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(sql, dialect=DIALECT)
    except (SqlglotError, RecursionError) as error:
        raise UntranslatableError("sqlglot cannot parse it") from error


def _column(name: str) -> exp.Expr:
    return exp.column(name, quoted=True)


def _branches(node: exp.Expr, known: Mapping[str, list[Rowwise]]) -> list[Rowwise]:
    match node:
        case exp.Subquery():
            _only(node, {"this", "alias"})
            return _branches(node.this, known)
        case exp.Table():
            _only(node, {"this", "alias"})
            if node.name.lower() not in known:
                raise UntranslatableError(f"{node.name} is no table of the source")
            return known[node.name.lower()]
        case exp.Union():
            _only(node, {"this", "expression", "distinct", "with_"})
            if node.args.get("distinct"):
                raise UntranslatableError("UNION without ALL takes rows together")
            known = _with(node, known)
            left, right = _branches(node.this, known), _branches(node.expression, known)
            return [*left, *(_renamed(branch, left[0].columns) for branch in right)]
        case exp.Select():
            _only(node, _SELECT)
            source = node.args.get("from_")
            if source is None:
                raise UntranslatableError("it reads no table")
            return [_selected(node, source.this.alias_or_name, branch) for branch in _branches(source.this, _with(node, known))]
    raise UntranslatableError(f"{node.key} is not row by row")


def _only(node: exp.Expr, allowed: set[str]) -> None:
    given = {name for name, value in node.args.items() if value} - allowed
    if given:
        raise UntranslatableError(f"{', '.join(sorted(name.rstrip('_') for name in given)).upper()} is not row by row")
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
        raise UntranslatableError("an alias names columns")


def _with(node: exp.Expr, known: Mapping[str, list[Rowwise]]) -> Mapping[str, list[Rowwise]]:
    clause = node.args.get("with_")
    if clause is None:
        return known
    for query in clause.expressions:
        if clause.args.get("recursive") or query.args["alias"].args.get("columns"):
            raise UntranslatableError("a WITH is recursive, or names columns")
        known = {**known, query.alias.lower(): _branches(query.this, known)}
    return known


def _renamed(branch: Rowwise, names: Iterable[str]) -> Rowwise:
    return Rowwise(branch.table, dict(zip(names, branch.columns.values(), strict=True)), branch.conditions)


def _selected(select: exp.Select, alias: str, source: Rowwise) -> Rowwise:
    """A SELECT over a source, as expressions of the source's raw columns."""
    columns: dict[str, exp.Expr] = {}
    for item in select.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if isinstance(item, exp.Column) and item.table.lower() != alias.lower():
                raise UntranslatableError(f"{item.sql(dialect=DIALECT)} is not all of one table")
            if any(value for name, value in star.args.items() if name != "except_"):
                raise UntranslatableError("a star is more than EXCEPT")
            left_out = {column.name.lower() for column in star.args.get("except_") or ()}
            columns.update({name: found for name, found in source.columns.items() if name not in left_out})
        else:
            name = (item.alias_or_name or item.sql(dialect=DIALECT)).lower()
            # The source's columns take precedence over aliases of the same SELECT.
            columns[name] = _inlined(item.unalias(), {**columns, **source.columns}, alias)
    conditions = dict(source.conditions)
    if where := select.args.get("where"):
        for condition in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
            conditions[_free(f"WHERE {condition.sql(dialect=DIALECT)}", conditions)] = _inlined(condition, source.columns, alias)
    return Rowwise(source.table, columns, conditions)


def _free(name: str, taken: Container[str]) -> str:
    """The name, or the name with a number: an inner and an outer WHERE with the same SQL may refer to different columns."""
    return next(one for one in chain([name], (f"{name} ({number})" for number in count(2))) if one not in taken)


def _inlined(expression: exp.Expr, scope: Mapping[str, exp.Expr], alias: str) -> exp.Expr:
    """The expression with its columns replaced by those of the scope."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.name.lower() not in scope or node.table.lower() not in ("", alias.lower()) or node.args.get("db"):
            raise UntranslatableError(f"{node.sql(dialect=DIALECT)} is no column of one table")
        found = scope[node.name.lower()].copy()
        return found if isinstance(found, exp.Column) else exp.paren(found, copy=False)

    return expression.copy().transform(replaced)


def _duckdb(expression: exp.Expr) -> str:
    return expression.transform(_strict).sql(dialect="duckdb")


def _strict(node: exp.Expr) -> exp.Expr:
    """Reproduces Spark: division by zero raises, DIV gives bigint, counts are int, and TRIM removes only blanks."""
    if isinstance(node, exp.Trim) and not node.expression:
        node.set("expression", exp.Literal.string(" "))
        return node
    if isinstance(node, exp.Length | exp.StrPosition):
        counted = node.copy()
        for child in counted.iter_expressions():
            child.replace(child.transform(_strict))
        return exp.Var(this=f"CAST({counted.sql(dialect='duckdb')} AS INTEGER)")
    if not isinstance(node, exp.Div | exp.IntDiv | exp.Mod):
        return node
    left, right = _duckdb(node.this), _duckdb(node.expression)
    operator = {exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%"}[type(node)]
    value = f"({left}) {operator} ({right})"
    value = f"CAST({value} AS BIGINT)" if isinstance(node, exp.IntDiv) else value
    # A cast that fails, to the narrowest type: `error` is not allowed inside TRY.
    failure = f"CAST('division by ' || CAST({right} AS VARCHAR) AS TINYINT)"
    return exp.Var(this=f"(CASE WHEN ({right}) = 0 THEN {failure} ELSE {value} END)")

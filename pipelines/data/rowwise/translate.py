"""Translates Spark's SQL over raw tables to a DuckDB expression for each column of the query, and lists the subexpressions of these.

The query is parsed in the Databricks dialect, which is Spark's with ANSI mode, as in ETL. Only functions and operators that are known
to have the same meaning in both engines are translated; ETL then compares their values. Values of a sample rarely reveal that one engine
uses decimals and the other floats: the types of all subexpressions have to agree, and casts among them must not depend on the engine."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, count, pairwise

import duckdb
import pyarrow as pa
import pyarrow.types as types
import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

DIALECT = "databricks"
Expression = exp.Expr
_KNOWN = (
    exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.If,
    exp.Case, exp.Coalesce, exp.Nullif, exp.Nvl2, exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.Abs, exp.Sqrt, exp.Greatest,
    exp.Least, exp.Length, exp.Substring, exp.StartsWith, exp.EndsWith, exp.Contains, exp.StrPosition, exp.Trim, exp.Concat, exp.DPipe,
    exp.IsNan, exp.Replace, exp.Column, exp.Tuple, exp.RegexpLike, exp.Translate,
)  # fmt: skip
_TYPES = {
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL,
    exp.DType.BOOLEAN, exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.DATE,
}  # fmt: skip
"""No types with a time of day: the time zone would be that of the serving process."""
_BEFORE_ALL = (TokenType.SELECT, TokenType.COMMA, TokenType.DOT)
"""What stands before a star that is all columns, and no product."""
_SELECT = {"with_", "expressions", "from_", "where"}
_CONSTANT = (exp.Literal, exp.Null, exp.Boolean)
_CASTS = {
    "whole": {"whole", "floating", "text"}, "truth": {"truth", "whole", "text"}, "floating": {"floating"}, "text": {"text"},
    "date": {"date", "text"},
}  # fmt: skip
"""Casts between kinds of types. A sample cannot show that two engines agree on all formats and roundings of numbers."""
_OF_ONE_SORT = (exp.Concat, exp.DPipe, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.In, exp.Between)
"""Operators whose operands must all be text, or none: otherwise an engine casts some."""
_SORTS = {
    "whole": types.is_integer, "truth": types.is_boolean, "floating": types.is_floating, "text": types.is_string, "date": types.is_date,
}  # fmt: skip

_DIGITS = "[+-]?(?:[0-9]+[.]?[0-9]*|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"
_PADDING = r"[\x00-\x20]*"
_NUMBER_OF_TEXT = (
    f"(CASE WHEN REGEXP_FULL_MATCH({{text}}, '{_PADDING}{_DIGITS}{_PADDING}') "
    r"THEN CAST(REGEXP_REPLACE({text}, '[\x00-\x20]', '', 'g') AS DOUBLE) "
    f"WHEN REGEXP_FULL_MATCH({{text}}, '(?si){_PADDING}(?:[+-]?(?:nan|inf|infinity|0x.*)|{_DIGITS}[df]){_PADDING}') "
    "THEN CAST({text} || ' is one of Java' AS DOUBLE) END)"
)
"""Spark's cast of a text to a double. What only Java takes for a number, such as 1d, fails, and so does what is out of range."""
_SAFE_PATTERN = re.compile(
    r"\^?(?:[^][\\^$.|?*+(){}]|\[\^?(?:(?!&&)[^][\\^])+\]|\((?:\?:)?|\)|\||[*+?]|\{[0-9]+(?:,[0-9]*)?\})*\$?", re.DOTALL
)
"""Regular expressions that mean the same to Java and RE2: without escapes, dots, flags, and anchors but at their ends."""
_LINE_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?$"
"""What `$` is to Java: the end, or before the last line break."""


class UntranslatableError(Exception):
    """Names the part of a query that cannot be computed row by row without Spark."""


@contextmanager
def duckdb_errors() -> Iterator[None]:
    """Around the comparison of a translation: turns DuckDB's errors into UntranslatableError."""
    try:
        yield
    except duckdb.Error as error:
        raise UntranslatableError(next(iter(str(error).splitlines()), type(error).__name__)) from error


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
        return _inline(_parse_condition(text), self.columns, "")


def rowwise(sql: str, tables: Mapping[str, Iterable[str]]) -> list[Rowwise]:
    """Branches of a query's UNION ALL, usually one. `tables` are the raw tables' columns. Raises UntranslatableError."""
    raw = {}
    for name, columns in tables.items():
        raw[name.lower()] = [Rowwise(name, {column.lower(): exp.column(column, quoted=True) for column in columns}, {})]
    return _branches(_parse(sql), raw)


def carry_column(sql: str, name: str) -> str:
    """The SQL of a row-by-row query with another column of its table in each SELECT, to the outermost one. All else stays as it is written:
    what sqlglot writes anew may mean something else, such as `datediff` of its dates in whole days."""
    tokens = sqlglot.tokenize(sql, dialect=DIALECT)
    places = [
        token.end + 1 for number, token in enumerate(tokens) if token.token_type == TokenType.SELECT and not _has_star(tokens[number:])
    ]
    parts = [sql[start:end] for start, end in pairwise([0, *places, len(sql)])]
    return f" {exp.column(name, quoted=True).sql(dialect=DIALECT)},".join(parts)


def _has_star(tokens: Sequence[Token]) -> bool:
    """Whether the SELECT that begins the tokens takes all columns of its source."""
    depth = 0
    for before, token in pairwise(tokens):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth < 0 or (depth == 0 and token.token_type == TokenType.FROM):
            return False
        if depth == 0 and token.token_type == TokenType.STAR and before.token_type in _BEFORE_ALL:
            return True
    return False


def source_columns(sql: str) -> set[str]:
    """Columns that SQL reads by name from its tables, as far as it can be parsed: those that it does not define itself."""
    try:
        query = _parse(sql)
    except UntranslatableError:
        return set()
    aliases = {item.alias.lower() for item in query.find_all(exp.Alias)}
    excluded = {column.name for star in query.find_all(exp.Star) for column in star.args.get("except_") or ()}
    return {name for name in {column.name for column in query.find_all(exp.Column)} | excluded if name and name.lower() not in aliases}


def to_duckdb_sql(expression: exp.Expr) -> str:
    """Translate a node to DuckDB's SQL. Raises UntranslatableError if it is not known to have the same meaning there."""
    for node in expression.walk():
        if not isinstance(node, _KNOWN) or (isinstance(node, exp.DataType) and node.this not in _TYPES):
            raise UntranslatableError(f"{node.sql(dialect=DIALECT)[:60]} may be another value without Spark")
    return _duckdb(expression)


def columns_in(expression: exp.Expr) -> set[str]:
    return {column.name for column in expression.find_all(exp.Column)}


def condition_columns(sql: str) -> set[str]:
    """The columns that a condition of Spark SQL reads, with what stands before their dots, which may be a struct. Of a condition that
    sqlglot cannot parse, all words: it may read any."""
    try:
        return {part.name for column in _parse_condition(sql).find_all(exp.Column) for part in column.parts}
    except UntranslatableError:
        return set(re.findall(r"\w+", sql))


def literals_in(expression: exp.Expr) -> set[str]:
    return {literal.name for literal in expression.find_all(exp.Literal)}


def _parse(sql: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(sql, dialect=DIALECT)
    except (SqlglotError, RecursionError) as error:
        raise UntranslatableError("sqlglot cannot parse it") from error


def _parse_condition(sql: str) -> exp.Expr:
    query = _parse(f"SELECT {sql}")  # alone, a column called `load` would begin a statement
    if len(query.expressions) != 1:
        raise UntranslatableError("it is no condition")
    condition: exp.Expr = query.expressions[0]
    return condition


def _branches(node: exp.Expr, sources: Mapping[str, list[Rowwise]]) -> list[Rowwise]:
    match node:
        case exp.Subquery():
            _only(node, {"this", "alias"})
            return _branches(node.this, sources)
        case exp.Table():
            _only(node, {"this", "alias"})
            if node.name.lower() not in sources:
                raise UntranslatableError(f"{node.name} is no table of the source")
            return sources[node.name.lower()]
        case exp.Union():
            _only(node, {"this", "expression", "distinct", "with_"})
            if node.args.get("distinct"):
                raise UntranslatableError("UNION without ALL takes rows together")
            sources = add_common_tables(node, sources)
            first, second = _branches(node.this, sources), _branches(node.expression, sources)
            return [
                *first,
                *(replace(branch, columns=dict(zip(first[0].columns, branch.columns.values(), strict=True))) for branch in second),
            ]
        case exp.Select():
            _only(node, _SELECT)
            source = node.args.get("from_")
            if source is None:
                raise UntranslatableError("it reads no table")
            return [_select(node, source.this.alias_or_name, branch) for branch in _branches(source.this, add_common_tables(node, sources))]
    raise UntranslatableError(f"{node.key} is not row by row")


def _only(node: exp.Expr, allowed: set[str]) -> None:
    clauses = {name for name, value in node.args.items() if value} - allowed
    if clauses:
        raise UntranslatableError(f"{', '.join(sorted(name.rstrip('_') for name in clauses)).upper()} is not row by row")
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
        raise UntranslatableError("an alias names columns")


def add_common_tables(node: exp.Expr, sources: Mapping[str, list[Rowwise]]) -> Mapping[str, list[Rowwise]]:
    clause = node.args.get("with_")
    if clause is None:
        return sources
    for query in clause.expressions:
        if clause.args.get("recursive") or query.args["alias"].args.get("columns"):
            raise UntranslatableError("a WITH is recursive, or names columns")
        sources = {**sources, query.alias.lower(): _branches(query.this, sources)}
    return sources


def _select(select: exp.Select, alias: str, source: Rowwise) -> Rowwise:
    """A SELECT over a source, as expressions of the source's raw columns."""
    columns: dict[str, exp.Expr] = {}
    for item in select.expressions:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if isinstance(item, exp.Column) and item.table.lower() != alias.lower():
                raise UntranslatableError(f"{item.sql(dialect=DIALECT)} is not all of one table")
            if any(value for name, value in star.args.items() if name != "except_"):
                raise UntranslatableError("a star is more than EXCEPT")
            excluded = {column.name.lower() for column in star.args.get("except_") or ()}
            columns.update({name: expression for name, expression in source.columns.items() if name not in excluded})
        else:
            name = (item.alias_or_name or item.sql(dialect=DIALECT)).lower()
            # The source's columns take precedence over aliases of the same SELECT.
            columns[name] = _inline(item.unalias(), {**columns, **source.columns}, alias)
    conditions = dict(source.conditions)
    if where := select.args.get("where"):
        for condition in where.this.flatten() if isinstance(where.this, exp.And) else [where.this]:
            name = f"WHERE {condition.sql(dialect=DIALECT)}"
            # An inner and an outer WHERE with the same SQL may refer to different columns.
            free = next(free for free in chain([name], (f"{name} ({number})" for number in count(2))) if free not in conditions)
            conditions[free] = _inline(condition, source.columns, alias)
    return Rowwise(source.table, columns, conditions)


def _inline(expression: exp.Expr, scope: Mapping[str, exp.Expr], alias: str) -> exp.Expr:
    """Replace the columns of an expression by those of the scope."""

    def inline(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        if node.name.lower() not in scope or node.table.lower() not in ("", alias.lower()) or node.args.get("db"):
            raise UntranslatableError(f"{node.sql(dialect=DIALECT)} is no column of one table")
        replacement = scope[node.name.lower()].copy()
        return replacement if isinstance(replacement, exp.Column) else exp.paren(replacement, copy=False)

    return expression.copy().transform(inline)


def _duckdb(expression: exp.Expr) -> str:
    return expression.transform(_strict).sql(dialect="duckdb")


def is_number_of_text(node: exp.Expr) -> bool:
    """Whether a node casts a text, or what is none, to a double as Spark does, in DuckDB too."""
    return isinstance(node, exp.TryCast) and node.to.this == exp.DType.DOUBLE


def _strict(node: exp.Expr) -> exp.Expr:
    """Reproduces Spark: division by zero raises, DIV gives bigint, counts are int, TRIM removes only blanks, texts match as in Java."""
    if isinstance(node, exp.RegexpLike):
        pattern = _pattern_for_re2(node.expression).replace("'", "''")
        return exp.Var(this=f"REGEXP_MATCHES({_duckdb(node.this)}, '{pattern}')")
    if isinstance(node, exp.Translate):
        constants = [text for text in (node.args["from_"], node.args["to"]) if isinstance(text, exp.Literal) and text.is_string]
        if len(constants) < 2 or any("\0" in text.name for text in constants):  # which Spark takes for a text's end
            raise UntranslatableError(f"{node.sql(dialect=DIALECT)[:60]} translates by no text")
    if is_number_of_text(node):
        return exp.Var(this=_NUMBER_OF_TEXT.format(text=f"CAST({_duckdb(node.this)} AS VARCHAR)"))
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
    dividend, divisor = _duckdb(node.this), _duckdb(node.expression)
    operator = {exp.Div: "/", exp.IntDiv: "//", exp.Mod: "%"}[type(node)]
    value = f"({dividend}) {operator} ({divisor})"
    value = f"CAST({value} AS BIGINT)" if isinstance(node, exp.IntDiv) else value
    # A cast that fails, to the narrowest type: `error` is not allowed inside TRY.
    failure = f"CAST('division by ' || CAST({divisor} AS VARCHAR) AS TINYINT)"
    return exp.Var(this=f"(CASE WHEN ({divisor}) = 0 THEN {failure} ELSE {value} END)")


def _pattern_for_re2(pattern: exp.Expr) -> str:
    """A regular expression of Java's for RE2. Raises UntranslatableError unless it is a constant that means the same to both."""
    text = pattern.name
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and _SAFE_PATTERN.fullmatch(text)):
        raise UntranslatableError(f"the pattern {pattern.sql(dialect=DIALECT)[:60]} may match other texts without Spark")
    return f"{text[:-1]}{_LINE_END}" if text.endswith("$") else text


def subexpressions(expressions: Iterable[exp.Expr]) -> dict[str, str]:
    """All subexpressions except constants, as Spark's SQL and as DuckDB's."""
    return {part.sql(dialect=DIALECT): to_duckdb_sql(part) for expression in expressions for part in _walk_computed(expression)}


def check_casts(expressions: Iterable[exp.Expr], kinds: Mapping[str, pa.DataType], columns: pa.Schema) -> None:
    """Raise UntranslatableError for a cast whose result depends on the engine. `kinds` are the subexpressions' types, by Spark's SQL."""

    def sort(node: exp.Expr) -> str:
        kind = columns.field(node.name).type if isinstance(node, exp.Column) else kinds[node.sql(dialect=DIALECT)]
        return next((name for name, is_sort in _SORTS.items() if is_sort(kind)), str(kind))

    for part in (part for expression in expressions for part in _walk_computed(expression)):
        operands = [] if isinstance(part, exp.Case) else [child.unnest() for child in part.iter_expressions()]
        sorts = {sort(operand) for operand in operands if not isinstance(operand, (*_CONSTANT, exp.DataType, exp.Tuple))}
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

"""SQL of a draft: names, templates with {} for what is put in, and what the query makes of the columns of its tables."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.sources.spark_sql import sql_text
from pipelines.init.tables.dialect import ALIGNED_CELL
from pipelines.init.tables.sample import SampledTable

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
SQL_CHARACTERS = 120
"""Of a line of the query."""
_KEYWORDS = re.compile(
    "all|and|any|as|between|by|case|cast|cross|distinct|else|end|except|exists|false|from|full|group|having|in|inner|intersect|interval|is|"
    "join|lateral|left|like|limit|natural|not|null|on|or|order|outer|right|select|then|true|union|unique|using|values|when|where|with",
    re.IGNORECASE,
)
"""Words of SQL that need backticks as a name, here or there."""


def renaming_query(names: Mapping[str, str]) -> str:
    """The query that gives columns these new names, with {} for its table; `*` if they have them."""
    return selecting_query({new: sql_name(name) for name, new in names.items()})


def selecting_query(expressions: Mapping[str, str]) -> str:
    """The query that selects these expressions, each by the name of its column, with {} for its table; `*` if all are that name."""
    if all(expression == sql_name(name) for name, expression in expressions.items()):
        return "*"
    names = {name: sql_name(name) for name in expressions}
    selected = [sql if sql == names[name] else f"{sql} AS {names[name]}" for name, sql in expressions.items()]
    return f"SELECT {escape_braces(', '.join(selected))} FROM {{}}"


def sql_name(name: str) -> str:
    """The name as an identifier of Spark SQL."""
    return name if _PLAIN.fullmatch(name) and not _KEYWORDS.fullmatch(name) else f"`{name.replace('`', '``')}`"


def escape_braces(sql: str) -> str:
    """SQL as a part of a template, which has {} for what is put in."""
    return sql.replace("{", "{{").replace("}", "}}")


@dataclass
class Query:
    """A query in the making."""

    table: SampledTable
    changed: dict[str, str] = field(default_factory=dict)
    """Expressions by the name of the column that they take the place of."""
    added: dict[str, str] = field(default_factory=dict)
    """Expressions by the name of a new column."""
    dropped: Sequence[str] = ()
    """Columns that the query has not."""
    condition: str = ""

    def expression(self, column: ColumnFacts) -> str:
        """The value of a column, with what must be made of its raw texts."""
        return self.changed.get(column.name) or self.added.get(column.name) or sql_name(column.name)

    def change(self, column: ColumnFacts, sql: str) -> None:
        """Make something of a column: `sql` has {} for it; one that is in no file is added."""
        expressions = self.added if column.name in self.table.derived else self.changed
        expressions[column.name] = sql.format(self.expression(column))

    def text(self, names: Collection[str], split_column: str) -> str:
        """The query over the tables of these names; empty if it would take every column of one table as it is."""
        select = self.table.select
        taken_out = [*self.changed, *(name for name in self.dropped if name not in self.changed)]
        if not (taken_out or self.added or self.condition or split_column):
            return "" if select == "*" else select.format(sql_name(next(iter(names))))
        rows = {name: sql_name(name) if select == "*" else f"({select.format(sql_name(name))})" for name in names}
        parts = [f"SELECT *, '{name}' AS {split_column} FROM {source}" for name, source in rows.items()]
        source = f"({' UNION ALL '.join(parts)})" if split_column else next(iter(rows.values()))
        first = f"* EXCEPT ({', '.join(map(sql_name, taken_out))})" if taken_out else "*"
        expressions = [f"{sql} AS {sql_name(name)}" for name, sql in {**self.changed, **self.added}.items()]
        selected = _lines([first, *expressions])
        condition = f"\nWHERE {self.condition}" if self.condition else ""
        return f"SELECT {selected}\nFROM {source}{condition}"


def line_values_query(columns: Mapping[str, str], header: Sequence[str] = (), mark: str = "", has_quotes: bool = False) -> str:
    """The query of lines of aligned values, which are no CSV: types by name, and {} for the name of the table.

    It leaves out a line of the names in the header. `mark` stands for a missing value, and values may have quotes."""
    values = []
    for place, (name, kind) in enumerate(columns.items()):
        cell = f"get(cells, {place})"
        marked = f"nullif({cell}, {escape_braces(sql_text(mark))})" if mark else cell
        values.append(f"{f'try_cast({cell} AS {kind})' if kind != 'string' else marked} AS {sql_name(name)}")
    split = "split(trim(value), '\\\\s+')"
    if has_quotes:
        split = f"transform(regexp_extract_all(value, {sql_text(ALIGNED_CELL)}, 0), cell -> trim(BOTH '\"' FROM cell))"
    cells = f"SELECT {split} AS cells FROM {{}} WHERE trim(value) <> ''"
    is_no_header = f" AND array_join(cells, ' ') <> {escape_braces(sql_text(' '.join(header)))}" if header else ""
    return f"SELECT {_lines(values)}\nFROM ({cells})\nWHERE size(cells) = {len(columns)}{is_no_header}"


def _lines(expressions: list[str]) -> str:
    """Expressions side by side, in lines of some length."""
    lines = [expressions[0]]
    for expression in expressions[1:]:
        if len(lines[-1]) + len(expression) > SQL_CHARACTERS:
            lines[-1] += ","
            lines.append(f"  {expression}")
        else:
            lines[-1] += f", {expression}"
    return "\n".join(lines)

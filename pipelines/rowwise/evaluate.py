"""SQL expressions over the rows of an Arrow table, by DuckDB, which reaches neither files nor the network."""

from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.dataset.manifest import ServedQuery

_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "threads": 1,
    "lock_configuration": True,
}


class Evaluator:
    """Each thread may call it: every call has a connection of its own."""

    def __init__(self) -> None:
        self._database = duckdb.connect(":memory:", config=_CLOSED)

    def columns(self, rows: pa.Table, expressions: Mapping[str, str]) -> tuple[pa.Table, list[str | None]]:
        """A column for each expression, NULL in rows for which one raised, and for each row what was raised.

        Raises duckdb.Error where the expressions fit no row.
        """
        try:
            return self._at_once(rows, expressions), [None] * len(rows)
        except duckdb.Error as error:
            if isinstance(error, duckdb.BinderException | duckdb.CatalogException | duckdb.ParserException):
                raise
            if len(rows) == 1:
                nulls = self._at_once(rows.slice(0, 0), expressions).schema.empty_table()
                row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in nulls.schema], schema=nulls.schema)
                return row, [str(error).splitlines()[0]]
        half = len(rows) // 2
        (upper, above), (lower, below) = self.columns(rows.slice(0, half), expressions), self.columns(rows.slice(half), expressions)
        return pa.concat_tables([upper, lower]), above + below

    def refused(self, rows: pa.Table, conditions: Mapping[str, str]) -> pa.Array:
        """For each row the first name whose condition is not true, or what it raised; NULL where all are true."""
        if not conditions:
            return pa.nulls(len(rows), pa.string())
        cases = " ".join(f"WHEN ({condition}) IS NOT TRUE THEN {_text(name)}" for name, condition in conditions.items())
        found, raised = self.columns(rows, {"refused": f"CASE {cases} END"})
        return pa.array([error or name for error, name in zip(raised, found["refused"].to_pylist(), strict=True)], pa.string())

    def queried(self, raw: pa.Table, query: ServedQuery) -> tuple[pa.Table, pa.Array]:
        """The query's columns of the rows that it keeps, and for each raw row why it is not kept, NULL where it is."""
        reasons = self.refused(raw, query.conditions)
        found, raised = self.columns(raw.filter(pc.is_null(reasons)), query.columns)
        errors = iter(raised)
        said = [next(errors) if reason is None else reason for reason in reasons.to_pylist()]
        return found.filter(pa.array([error is None for error in raised], pa.bool_())), pa.array(said, pa.string())

    def _at_once(self, rows: pa.Table, expressions: Mapping[str, str]) -> pa.Table:
        """Columns that are only handed on do not pass through DuckDB."""
        plain = {quoted(name): name for name in rows.column_names}
        computed = self._computed(rows, [expression for expression in expressions.values() if expression not in plain])
        columns = [rows[plain[text]] if text in plain else computed[text] for text in expressions.values()]
        return pa.table(columns, names=list(expressions))

    def _computed(self, rows: pa.Table, expressions: list[str]) -> dict[str, pa.ChunkedArray]:
        if not expressions:
            return {}
        names = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(expressions))
        connection = self._database.cursor()
        try:
            connection.register("raw", rows)
            found = connection.sql(f"SELECT {names} FROM raw").to_arrow_table()
        finally:
            connection.close()
        return dict(zip(expressions, found.columns, strict=True))


def quoted(name: str) -> str:
    """A column as an expression."""
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

"""Evaluates SQL expressions over an Arrow table with DuckDB, without access to files or the network."""

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.versions.manifest import ServedQuery, quote_identifier

_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "threads": 1,
    "disabled_optimizers": "expression_rewriter",  # it rewrites i + 1 > 3 to i > 2, which does not overflow as in Spark
}
_FIXED = ("SET GLOBAL TimeZone = 'UTC'", "SET GLOBAL lock_configuration = true")
"""DuckDB takes its time zone from the machine, and knows it only once it is connected."""


def open_locked_database() -> duckdb.DuckDBPyConnection:
    """An in-memory connection with locked settings, so that SQL cannot enable external access, in the time zone UTC."""
    connection = duckdb.connect(":memory:", config=_CLOSED)
    for statement in _FIXED:
        connection.execute(statement)
    return connection


class Evaluator:
    """Thread-safe: every call has its own connection."""

    def __init__(self) -> None:
        self._database = open_locked_database()

    def close(self) -> None:
        """Close the database; no other call may follow."""
        self._database.close()

    def columns(self, rows: pa.Table, expressions: Mapping[str, str]) -> tuple[pa.Table, list[str | None]]:
        """A column for each expression, NULL in rows for which it fails, and for each row the first failure, None if there is none. Raises
        duckdb.Error if the expressions are invalid for these columns. Columns passed through unchanged do not go through DuckDB."""
        plain = {quote_identifier(name): name for name in rows.column_names}
        computed = {name: text for name, text in expressions.items() if text not in plain}
        results, failed = dict[str, pa.ChunkedArray](), [None] * len(rows)
        if computed:
            # TRY is NULL if its expression fails; a struct never is.
            tried = ", ".join(f"TRY({{'value': {text}}}) AS c{number}" for number, text in enumerate(computed.values()))
            values = ", ".join(f"c{number}.value AS c{number}" for number in range(len(computed)))
            first_failed = " ".join(f"WHEN c{number} IS NULL THEN {_text(name)}" for number, name in enumerate(computed))
            table = self._select(rows, f"SELECT {values}, CASE {first_failed} END AS failed FROM (SELECT {tried} FROM raw)")
            *arrays, failures = table.columns
            results, failed = dict(zip(computed, arrays, strict=True)), failures.to_pylist()
        columns = {name: rows[plain[text]] if text in plain else results[name] for name, text in expressions.items()}
        return pa.table(columns), [name and f"{name} cannot be computed" for name in failed]

    def types(self, columns: pa.Schema, expressions: Iterable[str]) -> list[pa.DataType]:
        """The types of the expressions for rows with these columns."""
        selection = ", ".join(f"{text} AS c{number}" for number, text in enumerate(expressions))
        return self._select(columns.empty_table(), f"SELECT {selection} FROM raw").schema.types if selection else []

    def refusal_reasons(self, rows: pa.Table, conditions: Mapping[str, str]) -> pa.Array:
        """The first name, for each row, whose condition is not true or fails; NULL if all are true."""
        if not conditions:
            return pa.nulls(len(rows), pa.string())
        cases = " ".join(
            f"WHEN TRY(({condition}) IS TRUE) IS NULL THEN {_text(f'{name} cannot be computed')} "
            f"WHEN NOT TRY(({condition}) IS TRUE) THEN {_text(name)}"
            for name, condition in conditions.items()
        )
        return self._select(rows, f"SELECT CAST(CASE {cases} END AS VARCHAR) AS refused FROM raw")["refused"].combine_chunks()

    def apply_query(self, raw: pa.Table, query: ServedQuery) -> tuple[pa.Table, pa.Array]:
        """The query's columns for the rows that it keeps, and for each raw row the reason for dropping it, NULL if it is kept."""
        reasons = self.refusal_reasons(raw, query.conditions)
        columns, errors = self.columns(raw.filter(pc.is_null(reasons)), query.columns)
        remaining = iter(errors)
        all_reasons = [next(remaining) if reason is None else reason for reason in reasons.to_pylist()]
        return columns.filter(pa.array([error is None for error in errors], pa.bool_())), pa.array(all_reasons, pa.string())

    def _select(self, raw: pa.Table, query: str) -> pa.Table:
        connection = self._database.cursor()
        try:
            connection.register("raw", raw)
            return connection.sql(query).to_arrow_table()
        finally:
            connection.close()


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

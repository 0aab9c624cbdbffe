"""Databases of DuckDB: the rows of a table, a view or a query in a file, read by the DuckDB that the project has for its queries.

A file is opened for reading alone, without any other file: neither those that a query might name, nor extensions.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.sources.cell_files import local_file
from pipelines.data.sources.files.content import locate
from pipelines.errors import SourceError

SIDE_FILE = ".wal"
"""Of changes that are not in the database's file yet."""
_CONFIG: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": "false", "threads": "1"}
_DAMAGES = (duckdb.IOException, duckdb.SerializationException, duckdb.FatalException, duckdb.InternalException)
"""Beside a wrong checksum of a block, whose error has no class of its own."""
_WIDE = ("HUGEINT", "UHUGEINT", "BIGNUM")
"""Whole numbers that Arrow would have as a decimal of 38 digits, and a greater one as another number."""
_TEXTS = ("BIT", "TIME WITH TIME ZONE", "INTERVAL")
"""Types whose text says more than what Arrow has of them: a time its zone, a bit its place."""


@dataclass(frozen=True)
class DatabaseReader:
    """Reads a table, a view or a query."""

    table: str
    query: str

    def schema(self, path: str) -> pa.Schema:
        with local_file(path) as local, open_database(path, local) as database:
            return pa.RecordBatchReader.from_stream(database.sql(self._select(path, database))).schema

    def batches(self, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with local_file(path) as local, open_database(path, local) as database:
            columns = ", ".join(quote_duckdb_name(name) for name in names)
            rows = database.sql(f"SELECT {columns} FROM ({self._select(path, database)})")
            yield from pa.RecordBatchReader.from_stream(rows)

    def _select(self, path: str, database: Any) -> str:
        """The SELECT of all columns, in types that Arrow has. Raises SourceError for a table that is not there, a query that varies, and a
        type of which no part can be cast."""
        if self.table:
            source = _find_table(path, database, self.table)
        else:
            _check_query(path, database, self.query)
            # Written anew, without a semicolon and comments behind the SELECT.
            select = database.execute("SELECT json_deserialize_sql(json_serialize_sql(?::VARCHAR))", [self.query]).fetchall()[0][0]
            source = f"({select})"
        columns = []
        for name, kind, *_ in database.sql(f"DESCRIBE SELECT * FROM {source}").fetchall():
            if any(wide in kind for wide in _WIDE) and kind not in _WIDE:
                raise SourceError(f"{path}: column {name} is {kind}, whose whole numbers Spark does not have; CAST it in a query")
            cast = "DECIMAL(38, 0)" if kind in _WIDE else "VARCHAR" if kind in _TEXTS else ""
            quoted = quote_duckdb_name(name)
            columns.append(f"CAST({quoted} AS {cast}) AS {quoted}" if cast else quoted)
        return f"SELECT {', '.join(columns)} FROM {source}"


def table_sizes(path: str) -> dict[str, int]:
    """The tables of a database with their rows, by the names that the setting `table` takes. Raises SourceError as a reader does."""
    check_closed(path)
    with local_file(path) as local, open_database(path, local) as database:
        sql = "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal ORDER BY ALL"
        tables = database.sql(sql).fetchall()
        sizes = {}
        for schema, table in tables:
            rows = database.sql(f"SELECT count(*) FROM {quote_duckdb_name(schema)}.{quote_duckdb_name(table)}").fetchall()
            sizes[table if schema == "main" else f"{schema}.{table}"] = rows[0][0]
        return sizes


def check_closed(path: str) -> None:
    """Raises SourceError if a file beside the database has changes that are not in it."""
    filesystem, inner = locate(path)
    side_file = Path(inner + SIDE_FILE)
    if isinstance(filesystem, LocalFileSystem) and side_file.exists() and (size := side_file.stat().st_size):
        raise SourceError(
            f"{path} is being written to, or was not closed: {side_file.name} has {size:,} bytes of changes that are not in the file; "
            "close it in the programs that have it open, or open it once and run CHECKPOINT"
        )


@contextmanager
def open_database(path: str, local: str) -> Iterator[Any]:
    """A connection that can only read. Raises SourceError if the file is no database, is cut, or if its SQL cannot be run."""
    try:
        with closing(duckdb.connect(local, read_only=True, config=_CONFIG)) as database:
            yield database
    except duckdb.Error as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())[:300].replace(local, path)
        remedy = "correct the query of the table"
        if "Could not set lock" in reason:
            remedy = "close it in the program that writes to it, or copy it"
        elif isinstance(error, duckdb.PermissionException):
            remedy = "a query reads the tables of this database alone; make other files tables of their own, and join them in source.query"
        elif reason.startswith("Corrupt database") or isinstance(error, _DAMAGES):
            remedy = "the file is damaged, encrypted, or of a newer DuckDB: get it again, or export it as Parquet"
        raise SourceError(f"{path}: DuckDB: {reason}; {remedy}") from error


def quote_duckdb_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _find_table(path: str, database: Any, name: str) -> str:
    """The table with its quotes. Raises SourceError if there is none of the name."""
    sql = """SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal
        UNION SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"""
    tables = {table if schema == "main" else f"{schema}.{table}": (schema, table) for schema, table in database.sql(sql).fetchall()}
    matching = [key for key in tables if key.lower() == name.lower().removeprefix("main.")]
    if not matching:
        hint = suggestion(name, tables, f"it has {name_list(list(tables))}" if tables else "it has none")
        raise SourceError(f"{path} has no table {name}; {hint}")
    return ".".join(quote_duckdb_name(part) for part in tables[matching[0]])


def _check_query(path: str, database: Any, query: str) -> None:
    """Raises SourceError for a query whose rows are not those of the file alone: by chance or by the clock, as functions say themselves."""
    parsed = json.loads(database.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0][0])
    if parsed["error"]:
        raise SourceError(f"{path}: DuckDB: {parsed['error_message']}; a query is one SELECT")
    if len(parsed["statements"]) != 1:
        raise SourceError(f"{path}: DuckDB: the query has {len(parsed['statements'])} statements; a query is one SELECT")
    sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT'"
    varying = {name for (name,) in database.sql(sql).fetchall()}
    if used := sorted(varying & set(_function_names(parsed))):
        raise SourceError(
            f"{path}: the query calls {name_list(used)}, so that its rows vary; write the values into it, or compute them in source.query"
        )


def _function_names(node: Any) -> Iterator[str]:
    """The functions that a query calls, and `random` for a sample without a seed."""
    if isinstance(node, dict):
        if "sample_size" in node and node.get("seed", -1) in (-1, None):
            yield "random"
        yield from [node["function_name"].lower()] if node.get("function_name") else []
        node = list(node.values())
    for inner in node if isinstance(node, list) else ():
        yield from _function_names(inner)

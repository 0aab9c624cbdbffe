"""Databases of SQLite: the rows of a table, a view or a query in a file, read by Python's own sqlite3.

A file is read as it is, without locks and without files beside it, so nobody may be writing to it. Values have the types that SQLite
stores, whatever the column declares.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyarrow.fs import LocalFileSystem

from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.sources.cell_files import CellFault, Row, local_file, positions
from pipelines.data.sources.files.content import file_errors, locate
from pipelines.errors import SourceError

_SIGNATURE = b"SQLite format 3\0"
SIDE_FILES = ("-wal", "-shm", "-journal")
"""Of a database that is open, or was not closed: rows may be in the first, and changes to take back in the last."""
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_VARYING = {
    "random", "randomblob", "changes", "total_changes", "last_insert_rowid", "load_extension", "current_date", "current_time",
    "current_timestamp", "date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff",
}  # fmt: skip
"""Functions that are not of a row's values alone: of chance, of the connection, or of the clock, which those of dates may read."""


@dataclass(frozen=True)
class DatabaseReader:
    """Reads a table, a view or a query."""

    table: str
    query: str

    def __call__(self, path: str, names: Sequence[str]) -> Iterator[Row]:
        with local_file(path) as local, open_database(path, local) as connection:
            if self.table:  # SQLite's message about one that is missing has no other name
                sql = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
                names_of_tables = [row[0] for row in connection.execute(sql)]
                if self.table.lower() not in map(str.lower, names_of_tables):
                    hint = suggestion(self.table, names_of_tables, f"it has {name_list(names_of_tables)}")
                    raise SourceError(f"{path} has no table {self.table}; {hint}")
            sql = self.query or f"SELECT * FROM {quote_sqlite_name(self.table)}"
            cursor = connection.execute(sql)
            header = [column[0] for column in cursor.description or ()]
            where = positions(path, f"table {self.table}" if self.table else "the query", header, names)
            for line, row in enumerate(cursor, 1):
                yield line, [row[position] for position in where]


def table_sizes(path: str) -> dict[str, tuple[int, list[str]]]:
    """The tables of a database: of each its rows, and the names of its columns. Raises SourceError as a reader does."""
    check_closed(path)
    with local_file(path) as local, open_database(path, local) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        sizes = {}
        for name in names:
            if not name.startswith("sqlite_"):
                (rows,) = connection.execute(f"SELECT count(*) FROM {quote_sqlite_name(name)}").fetchone()
                columns = connection.execute(f"SELECT * FROM {quote_sqlite_name(name)} LIMIT 0").description
                sizes[name] = rows, [column[0] for column in columns]
        return sizes


def check_closed(path: str) -> None:
    """Raises SourceError if rows of a database are in a file beside it, or are to be taken back by one."""
    filesystem, inner = locate(path)
    if not isinstance(filesystem, LocalFileSystem):
        return
    for suffix in ("-wal", "-journal"):
        side_file = Path(inner + suffix)
        if side_file.exists() and (size := side_file.stat().st_size):
            raise SourceError(
                f"{path} is being written to, or was not closed: {side_file.name} has {size:,} bytes of changes that are not in the file; "
                f"close it in the programs that have it open, or copy it: sqlite3 {inner} \"VACUUM INTO 'copy.sqlite'\""
            )


@contextmanager
def open_database(path: str, local: str) -> Iterator[sqlite3.Connection]:
    """A connection that can only read. Raises SourceError if the file is no whole database, or if its SQL cannot be run."""
    try:
        _check_size(path, local)
        with closing(sqlite3.connect(f"file:{quote(local)}?mode=ro&immutable=1", uri=True)) as connection:
            if (fault := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(f"malformed: {fault}")
            connection.set_authorizer(_authorize)
            connection.text_factory = _decode
            yield connection
    except sqlite3.Error as error:
        reason = " ".join(str(error).split())
        remedy = "correct the query of the table"
        if "not authorized" in reason or "prohibited" in reason:
            remedy = (
                "a query only reads tables, without chance, clock and PRAGMA: read the values, and compute dates in source.query, as by "
                "timestamp_seconds()"
            )
        elif "not a database" in reason or "malformed" in reason or "disk image" in reason:
            remedy = "the file is damaged, encrypted, or of another format: get it again"
        raise SourceError(f"{path}: SQLite: {reason}; {remedy}") from error


def _check_size(path: str, local: str) -> None:
    """Raises SourceError if the file is shorter than it says: SQLite would read zeros, and rows of NULL, beyond its end."""
    with file_errors(path), open(local, "rb") as file:
        header, size = file.read(100), file.seek(0, 2)
    page_bytes = int.from_bytes(header[16:18]) if header[16:18] != b"\0\1" else 2**16
    pages = int.from_bytes(header[28:32]) if header[24:28] == header[92:96] else 0  # older programs do not count them
    if header.startswith(_SIGNATURE) and (size % max(page_bytes, 1) or size < pages * page_bytes):
        raise SourceError(f"{path} is cut: it has {size:,} bytes of {pages * page_bytes:,}; get the file again")


def _authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
    is_allowed = action in _READING or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() not in _VARYING)
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


def _decode(text: bytes) -> str | CellFault:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return CellFault("a text that is not UTF-8")


def quote_sqlite_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

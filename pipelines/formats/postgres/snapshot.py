"""One snapshot of a database for all tasks: a transaction of the driver exports it, and a transaction of each task imports it.

The driver's transaction stays open until all rows are read, since the snapshot ends with it. Both are REPEATABLE READ: in a transaction of
the level READ COMMITTED, which is the default, every statement has a snapshot of its own. The table is locked before the snapshot is taken,
in the mode that every SELECT has: TRUNCATE, and commands that write a table anew, wait, and would else leave the snapshot an empty table.
"""

import re
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pipelines.errors import SourceError
from pipelines.formats.postgres.address import quote_text, without_login
from pipelines.formats.postgres.server import LEAST_VERSION, execute, fetch, open_connection, remedy_key, server_errors, sql_state

_BEGIN = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SETTINGS = {
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
}
"""Of every transaction, where the server knows them: texts of values are the same for all users, and no limit ends it while tasks read."""
_MOMENT = "txid_current_snapshot()::text"
_LOG_POSITION = "[0-9A-F]+/[0-9A-F]+"
_WAITING_SECONDS = 600
"""Until a task gives up to wait for a free connection."""
_NO_TABLE, _NO_LOCK = ("42P01", "3F000"), "42809"
"""SQLSTATE of a table or schema that does not exist, and of a relation that cannot be locked, such as a materialized view."""


@dataclass(frozen=True)
class Exported:
    """The name of a snapshot, by which a task imports it."""

    url: str
    name: str
    moment: str
    """The transactions that the snapshot sees. Another server, to which a balancer might lead, may have a snapshot of the same name."""


@dataclass(frozen=True)
class Snapshot:
    """The open transaction of the driver."""

    connection: Any
    exported: Exported
    log_position: str
    """The place in the write-ahead log (LSN) when it was taken; empty if the server does not tell."""
    version: int


class MissingTableError(Exception):
    """The table does not exist; the message is the server's."""


def open_snapshot(url: str, table: str, subject: str, owner: object) -> Snapshot:
    """Take a snapshot, which ends when `owner` is not used any more. `table` has its quotes, and is empty for a query. Raises SourceError,
    and MissingTableError."""
    connection = _begin(url, table, subject)
    weakref.finalize(owner, close, connection)
    with server_errors(url, subject):
        _apply_settings(connection)
        sql = f"SELECT pg_export_snapshot() AS name, {_MOMENT} AS moment, current_setting('server_version_num')::int AS version"
        row = fetch(connection, sql)[0]
    if row["version"] < LEAST_VERSION:
        raise SourceError(f"{without_login(url)}: PostgreSQL is of version {row['version'] // 10_000}, and must be 12 or newer; upgrade it")
    return Snapshot(connection, Exported(url, row["name"], row["moment"]), _log_position(connection), row["version"])


@contextmanager
def import_snapshot(exported: Exported, subject: str) -> Iterator[Any]:
    """The connection of a task, in a transaction with the snapshot. Raises SourceError if the snapshot is gone, or the server is."""
    connection = _connect_patiently(exported.url)
    try:
        with server_errors(exported.url, subject):
            execute(connection, _BEGIN)
            execute(connection, f"SET TRANSACTION SNAPSHOT {quote_text(exported.name)}")
            _apply_settings(connection)
            moment = fetch(connection, f"SELECT {_MOMENT} AS moment")[0]["moment"]
        if moment != exported.moment:
            raise SourceError(
                f"{without_login(exported.url)} leads to several servers, since a task does not see the snapshot of the driver "
                f"({moment}, not {exported.moment}); give the address of one server"
            )
        with server_errors(exported.url, subject):
            yield connection
    finally:
        close(connection)


def went_back(earlier_position: str, position: str) -> bool:
    """Whether a log was further before. It never goes back on a server, unless that is restored to an earlier moment."""
    if not re.fullmatch(_LOG_POSITION, earlier_position) or not position:
        return False
    before, now = ([int(number, 16) for number in text.split("/")] for text in (earlier_position, position))
    return now < before


def close(connection: Any) -> None:
    """Ends the transaction. A server that is gone has ended it itself."""
    with suppress(Exception):
        connection.close()


def _begin(url: str, table: str, subject: str) -> Any:
    """A connection in a transaction that has locked the table and taken no snapshot yet."""
    from adbc_driver_manager import Error  # noqa: PLC0415, only who reads PostgreSQL has it installed

    connection = open_connection(url)
    try:
        execute(connection, _BEGIN)
        if table:
            execute(connection, f"LOCK TABLE {table} IN ACCESS SHARE MODE")
    except Error as error:
        if sql_state(error) == _NO_LOCK:
            connection.rollback()
            with server_errors(url, subject):
                execute(connection, _BEGIN)
            return connection
        close(connection)
        if sql_state(error) in _NO_TABLE:
            raise MissingTableError(str(error)) from error
        with server_errors(url, subject):
            raise
    return connection


def _apply_settings(connection: Any) -> None:
    values = ", ".join(f"({quote_text(name)}, {quote_text(value)})" for name, value in _SETTINGS.items())
    settings = f"(VALUES {values}) AS wanted(name, value) JOIN pg_settings AS setting ON lower(setting.name) = wanted.name"
    fetch(connection, f"SELECT count(set_config(setting.name, wanted.value, true)) AS settings FROM {settings}")


def _log_position(connection: Any) -> str:
    """Some services have no function for it, and a failed statement would end the transaction, but for the savepoint."""
    from adbc_driver_manager import Error  # noqa: PLC0415

    execute(connection, "SAVEPOINT log_position")
    try:
        sql = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
        return str(fetch(connection, f"SELECT ({sql})::text AS lsn")[0]["lsn"] or "")
    except Error:
        execute(connection, "ROLLBACK TO SAVEPOINT log_position")
        return ""


def _connect_patiently(url: str) -> Any:
    """A connection, once the server has one left."""
    start = time.monotonic()
    while True:
        try:
            return open_connection(url)
        except SourceError as error:
            if remedy_key(str(error), "") != "53" or time.monotonic() - start > _WAITING_SECONDS:
                raise
        time.sleep(1)

"""Connects to PostgreSQL over ADBC, whose driver turns its binary COPY into Arrow, and words its errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from pipelines.errors import ConfigError, SourceError
from pipelines.formats.postgres.address import connection_address, without_login

LEAST_VERSION = 120_000
"""Before 12, texts of floats were rounded, and partitions had no tree."""
_REMEDIES = {
    "28": "set the user in the url, and the password in PGPASSWORD or in the file of PGPASSFILE, for Spark's executors too",
    "3D": "correct the database's name in the url",
    "42501": "ask its owner to GRANT SELECT on what is read",
    "22023": "the connection of the driver that held the snapshot broke, or the url leads to several servers; run again",
    "53": "the server has no room for another connection; set tasks to a smaller number, or raise max_connections",
    "08": "the server went away; run again when it is back",
    "57": "the server went away; run again when it is back",
    "XX000": "the server failed; look into its log",
    "40001": "a standby server cancelled it; raise max_standby_streaming_delay there, or read from the primary server",
    "42": "correct the table, key, watermark or query",
    "25": "a query only reads; take what writes out of it",
    "22": "correct the query, or the values that it reads",
}
"""By the beginning of SQLSTATE, longer ones first: https://www.postgresql.org/docs/current/errcodes-appendix.html"""
_WORDS = {
    "28": r"password|authentication|pg_hba|role .* does not exist|no encryption",
    "3D": r"database .* does not exist",
    "53": r"too many (clients|connections)|remaining connection slots",
    "22": r"invalid byte sequence|has no equivalent in encoding|division by zero|out of range|invalid input syntax",
    "25": r"read-only transaction",
    "08": r"refused|closed the connection|could not (connect|receive|send|translate)|timeout|timed out|terminat|starting up|shutting down"
    r"|recovery mode|connection not open|no connection|Broken pipe|reset by peer|SSL",
}
"""What messages without a state say, as those of a connection that fails."""
_PREFIXES = (
    r"^[A-Z_]+: |\[libpq\] |Failed to \w+( query)?( '.*?')?: |ReadRecord failed at row \d+: |could not begin COPY: "
    r"|Execution error \[\w+\]: |\bERROR: +|\bFATAL: +"
)
"""Of the driver's messages, before what the server says."""


def check_adbc(place: str) -> None:
    """Raises ConfigError, about what is at `place` of the config, unless the driver is installed."""
    if find_spec("adbc_driver_postgresql") is None or find_spec("adbc_driver_manager") is None:
        raise ConfigError(
            f"{place}: PostgreSQL needs adbc-driver-postgresql, which is not installed; pip install 'lockstep-pipelines[postgres]'"
        )


def open_connection(url: str) -> Any:
    """A connection in a transaction, which begins with the first statement. Raises SourceError if the server does not take it."""
    # Only who reads PostgreSQL has it installed.
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]  # noqa: PLC0415

    with server_errors(url):
        return dbapi.connect(connection_address(url), autocommit=False)


def execute(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def fetch(connection: Any, sql: str) -> list[dict[str, Any]]:
    """The rows of a SELECT."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
        return rows


def fetch_schema(connection: Any, sql: str) -> pa.Schema:
    """The columns of a SELECT without reading rows, with PostgreSQL's types in the metadata of each."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM ({sql}) AS columns LIMIT 0")
        return cursor.fetch_arrow_table().schema


@contextmanager
def server_errors(url: str, subject: str = "") -> Iterator[None]:
    """Turns the driver's errors into a SourceError that says what failed, and the remedy. `subject` is the table or the query."""
    from adbc_driver_manager import Error  # noqa: PLC0415

    try:
        yield
    except (Error, pa.ArrowException, OSError) as error:
        message, state = reason(error), sql_state(error)
        remedy = _REMEDIES.get(remedy_key(message, state), "run again; if it fails each time, look into the server's log")
        place = " ".join(filter(None, (without_login(url), subject)))
        raise SourceError(f"{place}: PostgreSQL: {message}; {remedy}") from error


def sql_state(error: BaseException) -> str:
    """SQLSTATE of the driver's error; empty if it has none."""
    stated = re.search(r"SQLSTATE:? (\w{5})", str(error))
    return getattr(error, "sqlstate", None) or (stated[1] if stated else "")


def reason(error: BaseException) -> str:
    """The server's message in a line, without the SQL that it was sent."""
    text = str(error).partition("Query was:")[0]
    text = re.sub(_PREFIXES, "", text)
    text = re.sub(r"\s*(LINE \d+:.*|SQLSTATE.*)\Z", "", text, flags=re.DOTALL)
    return " ".join(text.split())[:300].rstrip(". ")


def remedy_key(message: str, state: str) -> str:
    """The key of _REMEDIES for an error; empty if there is none."""
    by_state = [key for key in sorted(_REMEDIES, key=len, reverse=True) if state.startswith(key)]
    by_words = [key for key, words in _WORDS.items() if re.search(words, message, re.IGNORECASE)]
    return next(iter([*by_state, *by_words] if state else by_words), "")

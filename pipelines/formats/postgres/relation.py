"""The relation that is read: a table, a view or a query, with its columns, and the parts that tasks read."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.config.messages.words import name_list, suggestion
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.postgres.address import quote_postgres_name, quote_table, quote_text, without_login
from pipelines.formats.postgres.columns import WATERMARKS, Column, relation_columns
from pipelines.formats.postgres.parts import key_conditions, key_cuts, page_conditions, page_cuts, part_count
from pipelines.formats.postgres.server import fetch, fetch_schema, open_connection, server_errors
from pipelines.formats.postgres.settings import PostgresTable
from pipelines.formats.postgres.snapshot import MissingTableError, Snapshot, close, open_snapshot

log = logging.getLogger(__name__)

_PAGE_BYTES = "current_setting('block_size')::bigint"
_PARTITIONS = """
WITH RECURSIVE partitions AS (
    SELECT {oid}::oid AS oid UNION SELECT inhrelid FROM pg_inherits JOIN partitions ON inhparent = oid
)
SELECT pg_relation_size(c.oid) / {page_bytes} AS pages, coalesce(c.relkind IN ('r', 'm') AND a.amname = 'heap', false) AS has_pages
FROM partitions JOIN pg_class c USING (oid) LEFT JOIN pg_am a ON a.oid = c.relam WHERE c.relkind NOT IN ('p')
"""
"""The sizes of a table and of all that inherit from it, which are read with it."""
_KEYS = ("int2", "int4", "int8")


@dataclass(frozen=True)
class Relation:
    """A relation in a snapshot."""

    settings: PostgresTable
    snapshot: Snapshot
    columns: Sequence[Column]
    source: str
    """SQL behind FROM."""
    conditions: Sequence[str]
    """SQL of the part of each task; every row is in one."""
    is_stored: bool
    """Whether it is a table with pages, which gives the same rows whenever it is read in the snapshot."""

    @property
    def subject(self) -> str:
        return subject(self.settings)

    @property
    def watermark(self) -> Column | None:
        return next((column for column in self.columns if column.name == self.settings.watermark), None)


def subject(settings: PostgresTable) -> str:
    return f"table {settings.table}" if settings.table else "the query"


def open_relation(name: str, settings: PostgresTable, cores: int, owner: object) -> Relation:
    """The relation in a new snapshot, which ends when `owner` is not used any more. Raises SourceError if it cannot be read, and
    ConfigError for a key or a watermark that is none."""
    table = _quote_table_setting(name, settings)
    source = table or f"({settings.query.rstrip().rstrip(';')}\n) AS query"
    try:
        snapshot = open_snapshot(settings.url, table, subject(settings), owner)
    except MissingTableError as error:
        raise _missing_table(settings) from error
    connection = snapshot.connection
    with server_errors(settings.url, subject(settings)):
        schema = fetch_schema(connection, f"SELECT * FROM {source}")
        dimensions = _array_dimensions(snapshot, table)
        columns = relation_columns(f"{without_login(settings.url)} {subject(settings)}", schema, dimensions)
        _check_column(name, "key", settings.key, columns, _KEYS, "integers")
        _check_column(name, "watermark", settings.watermark, columns, WATERMARKS, "integers, dates or timestamps")
        is_stored, conditions = _conditions(name, settings, snapshot, table, source, cores)
        _warn_of_policies(name, settings, snapshot, table)
    return Relation(settings, snapshot, columns, source, conditions, is_stored)


def _quote_table_setting(name: str, settings: PostgresTable) -> str:
    try:
        return quote_table(settings.table) if settings.table else ""
    except ValueError as error:
        raise ConfigError(f"source.tables.{name}.table: {error}") from error


def _array_dimensions(snapshot: Snapshot, table: str) -> dict[str, int]:
    """Of a table's arrays; without those of queries, of which PostgreSQL knows none."""
    if not table:
        return {}
    sql = f"SELECT attname::text AS name, attndims::int AS n FROM pg_attribute WHERE attrelid = {_oid(table)} AND attndims > 1"
    return {row["name"]: row["n"] for row in fetch(snapshot.connection, sql)}


def _oid(table: str) -> str:
    return f"{quote_text(table)}::regclass"


def _check_column(table: str, setting: str, name: str, columns: Sequence[Column], types: Sequence[str], rule: str) -> None:
    names = [column.name for column in columns]
    if name and name not in names:
        raise ConfigError(
            f"source.tables.{table}.{setting}: no column {name}; {suggestion(name, names, f'choose one of {name_list(names)}')}"
        )
    if name and (type_name := columns[names.index(name)].type_name) not in types:
        raise ConfigError(f"source.tables.{table}.{setting}: {name} is {type_name}, and a {setting} is a column of {rule}; choose another")


def _conditions(name: str, settings: PostgresTable, snapshot: Snapshot, table: str, source: str, cores: int) -> tuple[bool, list[str]]:
    """Whether the relation is stored, and the parts in which it is read."""
    partitions = fetch(snapshot.connection, _PARTITIONS.format(oid=_oid(table), page_bytes=_PAGE_BYTES)) if table else []
    is_stored = bool(partitions) and all(row["has_pages"] for row in partitions)
    if settings.key:
        column = quote_postgres_name(settings.key)
        sql = f"SELECT min({column})::bigint AS least, max({column})::bigint AS greatest FROM {source}"
        ends = fetch(snapshot.connection, sql)[0]
        if ends["least"] is None:
            return is_stored, ["true"]
        return is_stored, key_conditions(column, key_cuts(ends["least"], ends["greatest"], settings.tasks or min(2 * cores, 32)))
    if not is_stored:
        kind = "a query" if not table else "a view or a foreign table"
        log.info("source.tables.%s is %s, which one task reads; for several, set key to a column of integers", name, kind)
        return False, ["true"]
    pages = [row["pages"] for row in partitions]
    page_bytes = fetch(snapshot.connection, f"SELECT {_PAGE_BYTES} AS bytes")[0]["bytes"]
    return True, page_conditions(page_cuts(pages, part_count(settings.tasks, cores, sum(pages) * page_bytes)))


def _warn_of_policies(name: str, settings: PostgresTable, snapshot: Snapshot, table: str) -> None:
    if table and fetch(snapshot.connection, f"SELECT row_security_active({_oid(table)}) AS is_active")[0]["is_active"]:
        log.warning(
            "source.tables.%s: row-level security is active, so this user may not see all rows of %s; its policies decide which are read",
            *(name, settings.table),
        )


def _missing_table(settings: PostgresTable) -> SourceError:
    """The error, with the names of tables that the user may read."""
    connection = open_connection(settings.url)
    try:
        with server_errors(settings.url):
            sql = """
                SELECT n.nspname || '.' || c.relname AS name, pg_table_is_visible(c.oid) AS is_visible, c.relname::text AS short
                FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
                WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
                AND NOT c.relispartition AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1"""
            rows = fetch(connection, sql)
    finally:
        close(connection)
    names = [row["short"] if row["is_visible"] else row["name"] for row in rows]
    other_schemas = [row["name"] for row in rows if row["short"] == settings.table and not row["is_visible"]]
    hint = f"did you mean {name_list(other_schemas)}?" if other_schemas else suggestion(settings.table, names, f"it has {name_list(names)}")
    return SourceError(f"{without_login(settings.url)} has no table {settings.table}; {hint}")

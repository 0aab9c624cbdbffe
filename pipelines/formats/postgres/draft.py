"""Reads a table or a query of a database, for `lockstep init 'postgresql://user@host/database?table=name'`."""

import pyarrow as pa

from pipelines.data.features.auto.column_facts import ColumnFacts, convert_column
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.postgres.address import SCHEMES, address_fault, split_address, without_login
from pipelines.formats.postgres.server import check_adbc, fetch, server_errors
from pipelines.formats.postgres.settings import PostgresTable
from pipelines.init.draft import Draft, Request
from pipelines.init.tables.column_types import type_forms, without_infinity
from pipelines.init.tables.header import tensor_column_names
from pipelines.init.tables.sample import SampledTable, even_rows
from pipelines.init.tables.sql import renaming_query
from pipelines.init.tables.table_draft import draft_sampled_table

_SAMPLE_ROWS = 100_000


def draft_address(request: Request) -> Draft | None:
    """Draft the config for a table or a query that an address names; None for other data."""
    return draft_sampled_table(sample_postgres(request.data), request) if request.data.partition("://")[0] in SCHEMES else None


def sample_postgres(address: str) -> SampledTable:
    """The table, from a sample that is the same each time: of all pages at random, or the first rows of what has no pages. Raises
    ConfigError for an address without a table, and SourceError if it cannot be read."""
    url, table_settings = split_address(address)
    if fault := address_fault(url):
        raise ConfigError(fault)
    check_adbc(without_login(url))
    if len(table_settings) != 1:
        raise ConfigError(
            f"{without_login(url)} names no table; add it, as in {url}{'&' if '?' in url else '?'}table=name, or query=SELECT …"
        )
    rows, total, doubts = _sample(PostgresTable(url=url, **table_settings))
    if not len(rows):
        raise SourceError(f"{without_login(url)} {table_settings.get('table', 'query')} has no rows; give a table that has some")
    names = dict(zip(rows.column_names, tensor_column_names(rows.column_names), strict=True))
    columns = type_forms([convert_column(names[name], rows[name]) for name in rows.column_names])
    return SampledTable(
        {"format": "postgres", "url": url, **table_settings},
        [ColumnFacts(without_infinity(column)) for column in columns],
        max(total, len(rows)),
        len(rows) == total,
        select=renaming_query(names),
        doubts=doubts,
        raw_names={new: raw for raw, new in names.items()},
    )


def rows_to_try(settings: PostgresTable, most_bytes: int) -> pa.Table | None:
    """Some rows of a large table; None of one that is small."""
    rows, total, _ = _sample(settings)
    return None if len(rows) == total and rows.nbytes <= most_bytes else even_rows(rows, most_bytes)


def _sample(settings: PostgresTable) -> tuple[pa.Table, int, tuple[str, ...]]:
    """Rows without a fault, about how many there are in all, and doubts about those with one."""
    # Not when `lockstep init` starts, since Spark's types take their time to import.
    from pipelines.formats.postgres.reading import read_sample  # noqa: PLC0415
    from pipelines.formats.postgres.relation import open_relation  # noqa: PLC0415

    owner = _Owner()
    relation = open_relation("data", settings, 1, owner)
    with server_errors(settings.url, relation.subject):
        total = fetch(relation.snapshot.connection, f"SELECT count(*) AS n FROM {relation.source}")[0]["n"]
        source, limit = relation.source, f" LIMIT {_SAMPLE_ROWS}"
        if relation.is_stored and total > _SAMPLE_ROWS:
            source, limit = f"{source} TABLESAMPLE SYSTEM ({100 * _SAMPLE_ROWS / total}) REPEATABLE (0)", ""
        rows, faulty = read_sample(relation, source, limit)
    doubt = f"{faulty:,} of {faulty + len(rows):,} rows have a value that fits no column, such as infinity, and are refused"
    return rows, total - faulty, (doubt,) * bool(faulty)


class _Owner:
    """Of the snapshot, which ends with it."""


ADDRESS_DRAFTERS = (draft_address,)

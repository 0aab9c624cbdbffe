"""PostgreSQL without a server: addresses, names, ranges of pages and keys, nested arrays, and the text of an identity."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import parse
from pipelines.config.source.source import Source
from pipelines.errors import ConfigError
from pipelines.formats.postgres.address import address_fault, connection_address, quote_table, split_address, without_login
from pipelines.formats.postgres.arrays import nest
from pipelines.formats.postgres.columns import relation_columns
from pipelines.formats.postgres.fingerprint import Fingerprint, add, checksum_text, from_checksum, subtract
from pipelines.formats.postgres.parts import key_conditions, key_cuts, page_conditions, page_cuts, part_count
from pipelines.formats.postgres.server import reason, remedy_key


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("postgresql://ann@host:5432/db?sslmode=require", ""),
        ("postgres://host/db", ""),
        ("postgresql:///db?host=/var/run/postgresql", ""),
        ("mysql://host/db", "no address of PostgreSQL"),
        ("postgresql://host", "names no database"),
        ("postgresql://ann:pw@host/db", "has a password"),
        ("postgresql://host/db?password=pw", "has a password"),
        ("postgresql://one,two/db", "several hosts"),
        ("postgresql://one:1,two:2/db", "several hosts"),
        ("postgresql://host:many/db", "is no address"),
        ("postgresql://ann:pw/pw@host/db", "has a password"),
        ("postgresql://ann:pw?pw@host/db", "has a password"),
        ("postgresql://ann:pw#pw@host/db", "has a password"),
        ("postgresql://ann:12/pw@host/db", "has a password"),
    ],
)
def test_an_address_names_one_database_and_no_password(url: str, fault: str) -> None:
    assert fault in address_fault(url) and bool(fault) == bool(address_fault(url))
    assert "pw" not in address_fault(url)


def test_an_address_has_parameters_of_libpq_and_a_table() -> None:
    url, settings = split_address("postgresql://ann@host/db?sslmode=require&table=sales.orders")
    assert (url, settings) == ("postgresql://ann@host/db?sslmode=require", {"table": "sales.orders"})
    assert connection_address(f"{url}&connect_timeout=3&client_encoding=latin1").partition("?")[2].split("&") == [
        *("keepalives_idle=60", "connect_timeout=3", "fallback_application_name=lockstep", "sslmode=require", "client_encoding=utf8"),
    ]
    assert without_login("postgresql://ann:pw@host/db?passfile=x") == "postgresql://host/db"
    assert without_login("postgresql://ann:p/w@host/db?application_name=a@b") == "postgresql://host/db"


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("orders", '"orders"'),
        ("Sales.Orders", '"sales"."orders"'),
        ('"My Sales"."a.""b"""', '"My Sales"."a.""b"""'),
        ("straße", '"straße"'),
    ],
)
def test_a_name_is_quoted_as_sql_reads_it(name: str, quoted: str) -> None:
    assert quote_table(name) == quoted


@pytest.mark.parametrize("name", ["a.b.c", 'a" OR 1', "a; DROP TABLE b", ""])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no name of a table"):
        quote_table(name)


def test_settings_name_a_table_or_a_query_and_no_place_is_part_of_the_identity() -> None:
    table = {"format": "postgres", "url": "postgresql://host/db", "table": "t"}
    for values, message in [
        ({"query": "SELECT 1"}, "both is set"),
        ({"table": ""}, "neither is set"),
        ({"url": "http://h/d"}, "no address"),
    ]:
        with pytest.raises(ConfigError, match=message):
            parse({"name": "a", "source": {"tables": {"t": {**table, **values}}}, "dataset": {"path": "d", "features": {}}}, "a.yaml")
    excluded = Source.model_validate({"tables": {"t": table}}).excluded_from_identity
    assert excluded == {"drift": True, "tables": {"t": {"url", "key", "tasks", "file_column"}}}


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=8), st.integers(1, 40))
def test_ranges_of_pages_are_even_over_all_partitions(pages: list[int], parts: int) -> None:
    cuts = page_cuts(pages, parts)
    ends = [0, *cuts, max(pages)]
    sizes = [sum(min(size, stop) - min(size, start) for size in pages) for start, stop in pairwise(ends)]
    assert len(cuts) < parts and sum(sizes) == sum(pages)
    assert max(sizes) <= sum(pages) / parts + 2 * len(pages)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40), st.integers(1, 40))
def test_every_key_is_in_one_range(least: int, width: int, parts: int) -> None:
    greatest = min(least + width, 2**63 - 1)
    conditions = key_conditions("k", key_cuts(least, greatest, parts))
    assert len(conditions) <= parts
    for key in (least, (least + greatest) // 2, greatest, -(2**63), 2**63 - 1):
        assert sum(eval(text.replace("AND", "and").partition(" OR ")[0], {"k": key, "true": True}) for text in conditions) == 1


def test_the_first_and_the_last_part_have_no_end() -> None:
    assert page_conditions([]) == ["true"]
    assert page_conditions([7, 9]) == ["ctid < '(7,0)'::tid", "ctid >= '(7,0)'::tid AND ctid < '(9,0)'::tid", "ctid >= '(9,0)'::tid"]
    assert key_conditions('"k"', [5]) == ['"k" < 5 OR "k" IS NULL', '"k" >= 5']
    assert (
        part_count(0, 4, 2**30),
        part_count(3, 4, 2**30),
        part_count(0, 100, 2**40),
        part_count(8, 4, 3 * 2**20),
        part_count(0, 4, 0),
    ) == (*(8, 3, 32, 3, 1),)


def test_arrays_of_several_dimensions_are_nested() -> None:
    flat = pa.array([[1, 2, 3, 4, 5, 6], None, [], [7, None]], pa.list_(pa.int32()))
    nested = nest(flat, [np.array([3, 9, 0, 1]), np.array([2, 9, 0, 2])])
    assert nested.to_pylist() == [[[1, 2], [3, 4], [5, 6]], None, [], [[7, None]]]
    deep = nest(pa.array([list(range(8))]), [np.array([2]), np.array([2]), np.array([2])])
    assert deep.to_pylist() == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]


def test_a_checksum_has_all_that_an_increment_compares() -> None:
    field = pa.field("a", pa.int32(), metadata={"POSTGRESQL:type": "int4"})
    columns = relation_columns("t", pa.schema([field]), {})
    total = Fingerprint(10, 99, 2**64 - 1, 5, "2026-01-01 00:00:00.5+00")
    restored = from_checksum(checksum_text(total, columns), columns)
    assert restored is not None and restored.matches(total) and restored.watermark == total.watermark
    assert from_checksum("sha256:00", columns) is None
    other = relation_columns("t", pa.schema([field.with_metadata({"POSTGRESQL:type": "int8"})]), {})
    assert from_checksum(checksum_text(total, columns), other) is None
    new = Fingerprint(1, 9, 3, 2**64 - 1, "2026-01-01 00:00:00+00")
    assert subtract(add(total, new), new).matches(total) and add(total, new).watermark == total.watermark
    assert add(Fingerprint(1, 1, 1, 1, "9"), Fingerprint(1, 1, 1, 1, "10")).watermark == "10"
    assert add(Fingerprint(0, 0, 0, 0), Fingerprint(1, 1, 1, 1, "-5")).watermark == "-5"


@pytest.mark.parametrize(
    ("message", "state", "short", "key"),
    [
        (
            'IO: [libpq] Failed to connect: connection to server at "h" failed: FATAL:  password authentication failed for user "a"',
            "",
            "",
            "28",
        ),
        (
            "NOT_FOUND: Failed to prepare query: ERROR:  no relation\nLINE 1: x\n\nQuery was: SELECT secret. SQLSTATE: 42P01",
            "42P01",
            "",
            "42",
        ),
        ("INTERNAL: server closed the connection unexpectedly\n\tThis probably means", "", "", "08"),
        ("FATAL:  sorry, too many clients already", "", "sorry, too many clients already", "53"),
        ("x", "42501", "x", "42501"),
    ],
)
def test_the_driver_s_messages_have_a_remedy(message: str, state: str, short: str, key: str) -> None:
    line = reason(Exception(message))
    assert "\n" not in line and "secret" not in line and "FATAL" not in line and (not short or line == short)
    assert remedy_key(line, state) == key

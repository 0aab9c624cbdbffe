"""PostgreSQL, really started: all types, one snapshot under concurrent writes, increments, and errors in a line."""

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PASSWORD, Server, server
from pyspark.sql import SparkSession
from tables import raw_table, read_tables, source, view_rows
from waiting import wait_until

from pipelines import api
from pipelines.config import parse
from pipelines.data.sources.base import NoIncrementError
from pipelines.data.sources.source_errors import table_errors
from pipelines.data.sources.text.parsed import PROBLEM
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.run import run

pytest.importorskip("adbc_driver_postgresql")


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, server() as started:
        patch.setenv("PGPASSWORD", PASSWORD)
        (started.folder / "pgpass").write_text(f"127.0.0.1:{started.port}:*:*:{PASSWORD}\n")
        (started.folder / "pgpass").chmod(0o600)
        yield started


def settings(database: Server, **values: Any) -> dict[str, Any]:
    # The workers of Spark were started before: they find the password in the file.
    return {"format": "postgres", "url": f"{database.url}?passfile={database.folder}/pgpass", **values}


def read(spark: SparkSession, table: dict[str, Any]) -> tuple[list[tuple], list[str]]:
    """The rows, and the reasons of malformed ones."""
    with table_errors(raw := raw_table(table)):
        rows = raw.rows(spark).rows.collect()
    malformed = sorted(row[PROBLEM] for row in rows if row[PROBLEM])
    return sorted((tuple(row)[:-4] for row in rows if not row[PROBLEM]), key=repr), malformed


def test_each_type_has_its_counterpart(spark: SparkSession, database: Server) -> None:
    database.run(
        "CREATE TYPE mood AS ENUM ('calm', 'glad')",
        "CREATE DOMAIN share AS numeric(4,3) CHECK (value <= 1)",
        "CREATE TYPE place AS (x int, name text)",
        """CREATE TABLE kinds (a smallint, b bigint, c real, d double precision, e numeric(12,3), f numeric, g char(4), h bytea, i date,
           j timestamp, k timestamptz, l time, m interval, n uuid, o jsonb, p mood, q share, r place, s inet, t numeric(3,5),
           u numeric(5,-2), v int[], w text[], x numeric(9,2)[], y float8[][], z mood[], "Ä" oid)""",
        """INSERT INTO kinds VALUES (-1, 9223372036854775807, 'NaN', '-Infinity', '123456789.125', 0.1, 'ab', '\\x00ff', '0001-01-01',
           '9999-12-31 23:59:59.999999', '2026-01-31 01:02:03.5+02', '04:05:06.7', '1 year 2 days', '00000000-0000-0000-0000-00000000000a',
           '{"b": 1}', 'glad', 0.125, '(1,"a b")', '10.0.0.1', 0.00123, 12345, '{1,NULL}', '{NULL,"",x}', '{1.5,NaN}',
           '{{1,2},{3,NULL}}', '{calm,NULL}', 4294967295)""",
        "INSERT INTO kinds DEFAULT VALUES",
        "INSERT INTO kinds (v, y) VALUES ('{}', '{}'), ('[5:6]={1,2}', '[0:0][3:4]={{1,2}}')",
    )
    table = raw_table(settings(database, table="kinds")).empty(spark).schema
    names = {field.name: field.dataType.simpleString() for field in table}
    assert (names["e"], names["f"], names["q"], names["t"], names["u"]) == (
        *("decimal(12,3)", "double", "decimal(4,3)", "decimal(5,5)", "decimal(7,0)"),
    )
    assert (names["x"], names["y"], names["z"], names["Ä"]) == ("array<double>", "array<array<double>>", "array<string>", "bigint")
    rows, malformed = read(spark, settings(database, table="kinds"))
    assert not malformed and len(rows) == 4
    full = dict(zip(names, next(row for row in rows if row[0] == -1), strict=True))
    assert (full["b"], full["d"], full["e"], full["f"]) == (2**63 - 1, float("-inf"), Decimal("123456789.125"), 0.1)
    assert full["c"] != full["c"] and (full["g"], bytes(full["h"])) == ("ab  ", b"\x00\xff")
    assert [str(full[name]) for name in "ijk"] == ["0001-01-01", "9999-12-31 23:59:59.999999", "2026-01-30 23:02:03.500000"]
    assert [full[name] for name in "lmnopqrs"] == [
        *("04:05:06.7", "P1Y2D", "00000000-0000-0000-0000-00000000000a", '{"b": 1}', "glad", Decimal("0.125"), '(1,"a b")', "10.0.0.1"),
    ]
    assert (full["t"], full["u"], full["v"], full["w"], full["y"], full["z"], full["Ä"]) == (
        *(Decimal("0.00123"), Decimal(12300), [1, None], [None, "", "x"], [[1.0, 2.0], [3.0, None]], ["calm", None], 2**32 - 1),
    )
    arrays = sorted((row[21], row[24]) for row in rows if row[21] is not None and row[0] is None)
    assert arrays == [([], []), ([1, 2], [[1.0, 2.0]])]


@pytest.mark.full
def test_a_value_without_a_counterpart_makes_its_row_malformed(spark: SparkSession, database: Server) -> None:
    database.run(
        "CREATE TABLE odd (id int, a date, b timestamptz, c numeric(9,2), d numeric, e int[], f date[], g float8[][])",
        "INSERT INTO odd(id, a) VALUES (1, 'infinity'), (2, '0044-03-15 BC'), (3, '10000-01-01')",
        "INSERT INTO odd(id, b) VALUES (4, '-infinity'), (5, '10000-01-01')",
        "INSERT INTO odd(id, c) VALUES (6, 'NaN')",
        "INSERT INTO odd(id, d) VALUES (7, 12345678901234567), (8, '1e400'), (9, '1e-400'), (10, 'NaN'), (11, '-Infinity')",
        "INSERT INTO odd(id, d) VALUES (12, 2^53), (18, 12345678901234567.1)",
        "INSERT INTO odd(id, e) VALUES (13, '{{1,2},{3,4}}')",
        "INSERT INTO odd(id, f) VALUES (14, '{2026-01-01,infinity}'), (15, '{2026-01-01}')",
        "INSERT INTO odd(id, g) VALUES (16, '{1,2}'), (17, '{{{1}}}')",
    )
    tables = read_tables(spark, source(t=settings(database, table="odd")))
    assert sorted(row[0] for row in view_rows(spark)) == [10, 11, 12, 15, 18]
    assert tables.malformed is not None
    malformed = {int(row["record"][1:].split(",")[0]): row["reason"] for row in tables.malformed.collect()}
    assert sorted(malformed) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 16, 17]
    assert malformed[2] == "t: a is infinite, or outside of the years 1 to 9999, not date"
    assert malformed[6] == "t: c is NaN, not decimal(9,2)"
    assert malformed[7] == malformed[8] == "t: d is a whole number that no double is equal to, or out of range, not double"
    assert malformed[13] == "t: e is an array that has not 1 dimensions, not array<int>"


def test_all_tasks_read_the_rows_of_one_moment(spark: SparkSession, database: Server) -> None:
    """As COPY does in the same snapshot, while the table is written to: no row is there twice, and none is lost."""
    database.run(
        "CREATE TABLE busy (id bigint PRIMARY KEY, text text, amount numeric(20,4))",
        "INSERT INTO busy SELECT i, md5(i::text), i * 1.0001 FROM generate_series(1, 60000) i",
    )
    is_over = threading.Event()

    def write() -> None:
        with database.connect() as connection:
            number = 100_000
            while not is_over.is_set():
                connection.execute("UPDATE busy SET text = 'new' WHERE id %% 50 = %s", (number % 50,))
                connection.execute("DELETE FROM busy WHERE id %% 50 = %s", ((number + 25) % 50,))
                connection.execute(
                    "INSERT INTO busy SELECT i, 'inserted', 1 FROM generate_series(%s::bigint, %s::bigint) i", (number, number + 100)
                )
                number += 101

    table = raw_table(settings(database, table="busy", tasks=4))
    with ThreadPoolExecutor(1) as pool, ending(is_over):
        writer = pool.submit(write)
        exported = table.relation(spark).snapshot.exported
        assert len(table.conditions(spark)) == 4
        rows = table.rows(spark).rows.select("id", "text", "amount").collect()
        with database.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(f"SET TRANSACTION SNAPSHOT '{exported.name}'")
            with connection.cursor().copy("COPY busy TO STDOUT") as copy:
                expected = sorted(b"".join(bytes(part) for part in copy).decode().splitlines())
    writer.result()
    assert sorted(f"{row['id']}\t{row['text']}\t{row['amount']}" for row in rows) == expected and len(expected) >= 1_000
    assert raw_table(settings(database, table="busy")).identity(spark)[0].checksum != table.identity(spark)[0].checksum


@contextmanager
def ending(event: threading.Event) -> Iterator[None]:
    try:
        yield
    finally:
        event.set()


@pytest.mark.full
def test_the_identity_is_that_of_the_rows(spark: SparkSession, database: Server) -> None:
    """The order, place and server of rows are no part of it; each value and type is."""
    database.run("CREATE TABLE first AS SELECT i AS id, i::text AS name FROM generate_series(1, 3000) i")
    database.run("CREATE TABLE second AS SELECT * FROM first ORDER BY id DESC")

    def checksum(**table: Any) -> str:
        return raw_table(settings(database, **table)).identity(spark)[0].checksum

    earlier = checksum(table="first")
    assert checksum(table="second") == checksum(query="SELECT * FROM first ORDER BY random()") == earlier
    assert checksum(query="SELECT * FROM first", key="id", tasks=3) == earlier
    database.run("VACUUM FULL first", "ALTER TABLE first ADD COLUMN extra int DEFAULT 1")
    assert checksum(table="first") != earlier
    assert checksum(query="SELECT id, name FROM first") == earlier
    assert checksum(query="SELECT id::bigint AS id, name FROM first") != earlier
    database.run("UPDATE first SET name = '0' WHERE id = 17")
    assert checksum(query="SELECT id, name FROM first") != earlier


@pytest.mark.full
def test_tables_of_every_sort(spark: SparkSession, database: Server) -> None:
    database.run(
        'CREATE SCHEMA "My Sales"',
        'CREATE TABLE "My Sales"."Orders.all" ("Id" int, "SELECT" text)',
        """INSERT INTO "My Sales"."Orders.all" VALUES (1, 'it''s \\')""",
        "CREATE TABLE parted (id int, day date) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (20000)",
        "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (20000) TO (90000) PARTITION BY RANGE (id)",
        "CREATE TABLE higher PARTITION OF high DEFAULT",
        "INSERT INTO parted SELECT i, '2026-01-01' FROM generate_series(1, 89999) i",
        "CREATE TABLE parent (id int)",
        "CREATE TABLE child (more int) INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2, 3)",
        "CREATE VIEW seen AS SELECT id FROM parted WHERE id <= 5000",
        "CREATE MATERIALIZED VIEW kept AS SELECT id FROM parted WHERE id <= 50",
        "CREATE TABLE bare (id int)",
    )
    assert read(spark, settings(database, table='"My Sales"."Orders.all"')) == ([(1, "it's \\")], [])
    parted = raw_table(settings(database, table="Parted", tasks=3))
    assert len(parted.conditions(spark)) == 3
    rows, _ = read(spark, settings(database, table="public.parted", tasks=3))
    assert sorted(row[0] for row in rows) == list(range(1, 90_000))
    assert read(spark, settings(database, table="parent"))[0] == [(1,), (2,)]
    assert sorted(read(spark, settings(database, table="seen", key="id", tasks=4))[0]) == [(number,) for number in range(1, 5_001)]
    assert len(read(spark, settings(database, table="kept"))[0]) == 50
    with pytest.raises(SourceError, match=r"source.tables.t: .* bare holds no rows; give a path that does"):
        read_tables(spark, source(t=settings(database, table="bare")))


@pytest.mark.full
def test_a_table_is_locked_while_it_is_read(spark: SparkSession, database: Server) -> None:
    """TRUNCATE would leave an older snapshot an empty table."""
    database.run("CREATE TABLE held AS SELECT 1 AS id")
    table = raw_table(settings(database, table="held"))
    table.identity(spark)
    with database.connect() as connection:
        connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(Exception, match="lock timeout"):
            connection.execute("TRUNCATE held")
        assert table.rows(spark).rows.count() == 1
        del table
        connection.execute("TRUNCATE held")


@pytest.mark.full
def test_a_query_that_varies_is_refused(spark: SparkSession, database: Server) -> None:
    database.run("CREATE TABLE many AS SELECT i AS id FROM generate_series(1, 500) i")
    with pytest.raises(SourceError, match=r"gave other rows when it was read \(500\) than when they were counted \(500\)"):
        read(spark, settings(database, query="SELECT id, clock_timestamp() AS now FROM many"))
    with pytest.raises(SourceError, match=r"PostgreSQL: cannot execute nextval\(\) in a read-only transaction; a query only reads"):
        database.run("CREATE SEQUENCE numbers")
        read(spark, settings(database, query="SELECT nextval('numbers') AS n"))
    rows, _ = read(spark, settings(database, query="SELECT id, id / 2.0 AS half, NULL AS nothing FROM many WHERE id < 3 -- two\n;"))
    assert rows == [(1, 0.5, None), (2, 1.0, None)]


@pytest.mark.full
def test_a_database_of_another_encoding(spark: SparkSession, database: Server) -> None:
    for encoding in ("LATIN1", "SQL_ASCII"):
        database.run(f"CREATE DATABASE {encoding} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
        with database.connect(encoding.lower()) as connection:
            connection.execute("CREATE TABLE words (word text)")
            connection.execute("INSERT INTO words VALUES (%s)", ("é",))
    latin, ascii = (
        {**settings(database, table="words"), "url": settings(database)["url"].replace("/postgres?", f"/{name}?")}
        for name in ("latin1", "sql_ascii")
    )
    assert read(spark, latin)[0] == read(spark, ascii)[0] == [("é",)]
    with database.connect("sql_ascii") as connection:
        connection.execute("INSERT INTO words VALUES (E'\\xe9')")
    with pytest.raises(SourceError, match=r"invalid byte sequence for encoding .UTF8.: 0xe9; correct the query, or the values"):
        read(spark, ascii)


def test_rows_above_a_watermark_are_an_increment(spark: SparkSession, database: Server) -> None:
    database.run(
        "CREATE TABLE log AS SELECT i AS id, timestamptz '2026-01-01 00:00+00' + i * interval '1 s' AS at FROM generate_series(1, 1000) i"
    )
    table = settings(database, table="log", watermark="at")
    earlier = raw_table(table).identity(spark)
    assert earlier[0].checksum.endswith("@2026-01-01 00:16:40+00")
    assert raw_table(table).since(spark, earlier) is None
    database.run("INSERT INTO log SELECT i, timestamptz '2026-01-02' + i * interval '0.5 s' FROM generate_series(1001, 1010) i")
    current = raw_table(table)
    increment = current.since(spark, earlier)
    assert increment is not None and sorted(row["id"] for row in increment.rows(spark).rows.collect()) == list(range(1001, 1011))
    assert increment.identity(spark)[0].checksum.startswith("postgres:10-")
    later = current.identity(spark)
    with pytest.raises(NoIncrementError, match="has no watermark"):
        raw_table(settings(database, table="log")).since(spark, earlier)
    with pytest.raises(NoIncrementError, match="does not know a value of the watermark at"):
        current.since(spark, raw_table(settings(database, table="log")).identity(spark))
    database.run("INSERT INTO log VALUES (0, '2026-01-01 00:00:05.5+00')")
    with pytest.raises(NoIncrementError, match=r"has 1,011 rows up to at 2026-01-02 .*, and had 1,010"):
        raw_table(table).since(spark, later)
    database.run("DELETE FROM log WHERE id = 0", "UPDATE log SET id = -1 WHERE id = 1")
    with pytest.raises(NoIncrementError, match=r"rows of .* up to at .* have been altered"):
        raw_table(table).since(spark, later)
    database.run("DELETE FROM log WHERE at > '2026-01-02'")
    with pytest.raises(NoIncrementError, match=r"newest rows of .* gone: at was up to 2026-01-02 .*, and is up to 2026-01-01 00:16:40\+00"):
        raw_table(table).since(spark, later)
    restored = [replace(file, path=re.sub("at [0-9A-F/]+$", "at FF/0", file.path)) for file in later]
    with pytest.raises(SourceError, match=r"back in time: its log was at FF/0 and is at \w+/\w+, at was up to .*; restore the rows, or"):
        raw_table(table).since(spark, restored)
    database.run("INSERT INTO log VALUES (5, 'infinity')")
    with pytest.raises(SourceError, match="the watermark at is infinity in a row"):
        raw_table(table).identity(spark)


def test_rows_that_were_deleted_at_the_source_stop_no_night(spark: SparkSession, database: Server, tmp_path: Path) -> None:
    """Neither the newest row nor another one. All rows are read, and the next night reads the new ones alone again."""
    database.run("CREATE TABLE grows AS SELECT i AS id, (i % 7)::float8 AS x FROM generate_series(1, 3000) i")
    config = parse(pipeline(settings(database, table="grows", watermark="id"), tmp_path), "rows.yaml")
    run(config, parent_name="previous")
    for newest, change in enumerate(("DELETE FROM grows WHERE id = 3000", "DELETE FROM grows WHERE id = 5"), 3001):
        database.run(change)
        full = run(config, parent_name="previous")
        assert full.parent == "" and sum(split.rows for split in full.splits.values()) == 2999
        database.run(f"INSERT INTO grows VALUES ({newest}, 1)")
        assert run(config, parent_name="previous").parent == full.version
    database.run("DELETE FROM grows")
    with pytest.raises(SourceError, match="holds no rows"):
        run(config, parent_name="previous")


def failure(spark: SparkSession, table: dict[str, Any]) -> str:
    with pytest.raises((SourceError, ConfigError)) as caught, table_errors(raw := raw_table(table)):
        raw.identity(spark)
    return str(caught.value)


def test_what_cannot_be_read_is_one_line(spark: SparkSession, database: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    database.run(
        "CREATE ROLE reader LOGIN PASSWORD 'for tests'", "CREATE TABLE orders (id int, price money)", "CREATE SCHEMA archive",
        "CREATE TABLE archive.bills (id int)", 'CREATE TABLE twice ("a" int, "A" int)', "REVOKE ALL ON orders FROM public",
    )  # fmt: skip
    assert "has no table ordres; did you mean orders?" in failure(spark, settings(database, table="ordres"))
    assert "has no table bills; did you mean archive.bills?" in failure(spark, settings(database, table="bills"))
    assert "column price is money" in failure(spark, settings(database, table="orders"))
    assert "has columns a, A, which Spark takes for one" in failure(spark, settings(database, table="twice"))
    assert "no column nmae" in failure(spark, settings(database, query="SELECT 1 AS name", key="nmae"))
    assert "watermark: name is text, and a watermark is a column of integers, dates" in failure(
        spark, settings(database, query="SELECT 'a'::text AS name", watermark="name")
    )
    assert 'PostgreSQL: syntax error at or near "1"; correct the table, key, watermark or query' in failure(
        spark, settings(database, query="SELEC 1")
    )
    assert "PostgreSQL: division by zero; correct the query" in failure(
        spark, settings(database, query="SELECT 1 / (i - 1) AS x FROM generate_series(1, 2) i")
    )
    reader = settings(database, table="orders")["url"].replace("postgres@", "reader@")
    assert "permission denied for table orders; ask its owner to GRANT SELECT" in failure(
        spark, {**settings(database, table="orders"), "url": reader}
    )
    nowhere = settings(database, table="orders")["url"].replace("/postgres?", "/nowhere?")
    assert 'database "nowhere" does not exist; correct the database' in failure(
        spark, {**settings(database, table="orders"), "url": nowhere}
    )
    closed = "postgresql://127.0.0.1:1/postgres"
    assert "Connection refused" in failure(spark, settings(database, table="orders", url=closed))
    monkeypatch.setenv("PGPASSWORD", "wrong")
    wrong = failure(spark, settings(database, table="orders", url=database.url))
    assert "password authentication failed" in wrong and "PGPASSWORD" in wrong and "wrong" not in wrong


@pytest.mark.full
def test_a_server_that_dies_leaves_no_version(spark: SparkSession, tmp_path: Path) -> None:
    with server() as database:
        database.run("CREATE TABLE rows AS SELECT i AS id, (i % 7)::float8 AS x FROM generate_series(1, 4000) i")
        (database.folder / "pgpass").write_text(f"127.0.0.1:{database.port}:*:*:{PASSWORD}\n")
        (database.folder / "pgpass").chmod(0o600)
        config = parse(pipeline(settings(database, table="rows"), tmp_path), "rows.yaml")
        manifest = run(config)
        assert sum(split.rows for split in manifest.splits.values()) == 4000
        assert run(config).created == manifest.created, "nothing has changed"
        query = "SELECT id, x + (SELECT 0 FROM pg_sleep(0.002 + x * 0)) AS x FROM rows"
        slow = parse(pipeline(settings(database, query=query), tmp_path), "rows.yaml")
        with ThreadPoolExecutor(1) as pool:
            killer = pool.submit(kill_while_a_task_reads, database)
            with pytest.raises(SourceError, match=r"source.tables.rows: postgresql://.*PostgreSQL: .*; the server went away; run again"):
                run(slow)
            killer.result()
    assert len(list((tmp_path / "data").glob("*/manifest.json"))) == 1


def kill_while_a_task_reads(database: Server) -> None:
    """The driver has one connection, and a task another one."""
    with database.connect() as connection:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'lockstep'"
        wait_until(lambda: connection.execute(sql).fetchone() == (2,), "the connection of a task", 120)
        time.sleep(0.5)
    database.kill()


def pipeline(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    return {
        "name": "rows",
        "source": {"tables": {"rows": table}, "query": "SELECT *, x > 3 AS large FROM rows"},
        "dataset": {"path": str(folder / "data"), "key": ["id"], "features": {"x": "standardize"}, "target": {"large": "binary"}},
        "task": {"kind": "tabular"},
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }


@pytest.mark.full
def test_init_drafts_a_config_from_an_address(database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database.run(
        """CREATE TABLE visits AS SELECT i AS id, 20 + i % 50 AS age, (i * 7919 % 1000)::numeric(9,2) / 3 AS paid,
           md5((i % 5)::text) AS town, CASE WHEN i % 10 = 0 THEN 'infinity' ELSE timestamp '2026-01-01' + i * interval '1 h' END AS seen,
           (i * 7919 % 1000) > 500 AS "left" FROM generate_series(1, 600) i"""
    )
    address = f"{settings(database)['url']}&table=visits"
    draft = api.init(address, target="left", output="visits.yaml", rehearse=False)
    text = (tmp_path / "visits.yaml").read_text()
    assert f"format: postgres\n      url: {settings(database)['url']}\n      table: visits\n" in text
    assert any("60 of 600 rows have a value that fits no column" in doubt for doubt in draft.assumptions)
    with pytest.raises(ConfigError, match="names no table; add it, as in postgresql://"):
        api.init(settings(database)["url"], rehearse=False)
    with pytest.raises(ConfigError, match="the address has a password"):
        api.init("postgresql://ann:secret@host/db?table=t", rehearse=False)

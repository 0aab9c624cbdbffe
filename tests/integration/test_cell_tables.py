"""Excel and SQLite through ETL: typed cells are rows, other cells are in the quarantine, and each row knows its file."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tables import raw_table, read_tables, source

from pipelines.config import parse
from pipelines.data.sources.base import Rows
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.run import run

SCHEMA = "id int, name string, born date, paid decimal(6,2), seen timestamp, member boolean, weight float, face binary"


def write_database(path: Path, start: int, rows: int) -> Path:
    """A table as SQLite has it: dates are texts, truth is a number, and any column may hold anything."""
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        columns = "id INTEGER, name TEXT, born TEXT, paid NUMERIC, seen TEXT, member INT, weight REAL, face BLOB"
        connection.execute(f"CREATE TABLE people ({columns})")
        connection.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (number, f"00{number}", "1990-05-06", "12.50", "2017-01-02 03:04:05", number % 2, 0.5, bytes([number % 256]))
                for number in range(start, start + rows)
            ],
        )
        connection.commit()
    return path


def settings(path: Path, **table: Any) -> dict[str, Any]:
    return {"format": "sqlite", "path": str(path), "table": "people", "schema": SCHEMA, **table}


def test_typed_cells_are_rows_and_others_malformed_records(spark: SparkSession, tmp_path: Path) -> None:
    path = write_database(tmp_path / "in/a.db", 0, 3)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO people(id, name) VALUES ('many', 'x')")
        connection.execute("INSERT INTO people(id, born) VALUES (9, '6.5.1990')")
        connection.commit()
    write_database(tmp_path / "in/b.db", 5, 2)
    tables = read_tables(spark, source(t=settings(tmp_path / "in", file_column="file")))
    rows = {row["id"]: row for row in spark.table("t").collect()}
    assert sorted(rows) == [0, 1, 2, 5, 6] and (rows[6]["name"], rows[6]["file"], rows[0]["file"]) == ("006", "b.db", "a.db")
    assert [str(rows[1][name]) for name in ("born", "paid", "seen", "member")] == ["1990-05-06", "12.50", "2017-01-02 03:04:05", "True"]
    assert (rows[1]["weight"], bytes(rows[1]["face"])) == (0.5, b"\x01")
    assert tables.malformed is not None and tables.parsed == {"t": 7}
    malformed = sorted(tables.malformed.collect())
    assert [(row["reason"], json.loads(row["record"])[:2], row["source"]) for row in malformed] == [
        ("t: born is text, not date", [9, None], f"{path}:5"),
        ("t: id is text, not int", ["many", "x"], f"{path}:4"),
    ]


@pytest.mark.full
def test_what_no_cell_holds_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    path = write_database(tmp_path / "a.db", 0, 1)
    with pytest.raises(ConfigError, match=r"source.tables.t.schema: a is array<int>, which no cell of sqlite holds; choose a number"):
        raw_table(settings(path, schema="a array<int>")).empty(spark)
    with pytest.raises(SourceError, match=r"source.tables.t: .*a.db has no table other; it has people"):
        table_rows(spark, settings(path, table="other"))
    with pytest.raises(SourceError, match=r"source.tables.t: .*table people has no column nmae \(did you mean name\?\)"):
        table_rows(spark, settings(path, schema="nmae string"))


def table_rows(spark: SparkSession, table: dict[str, Any]) -> Rows:
    read_tables(spark, source(t=table))
    return raw_table(table).rows(spark)


@pytest.mark.full
def test_p6_a_version_of_an_sqlite_table_is_the_same_again(spark: SparkSession, tmp_path: Path) -> None:
    path = write_database(tmp_path / "a.db", 0, 400)
    dataset = {"features": {"weight": "standardize", "name": {"encoder": "hash", "buckets": 16}}, "target": {"member": "binary"}}
    values: dict[str, Any] = {
        "name": "people",
        "source": {"tables": {"people": settings(path)}},
        "dataset": {"path": str(tmp_path / "data"), "key": ["id"], **dataset},
        "task": {"kind": "tabular"},
        "tracking": {"uri": f"sqlite:///{tmp_path}/mlflow.db"},
    }
    manifest = run(parse(values, "people.yaml"))
    assert sum(split.rows for split in manifest.splits.values()) == 400 and not manifest.quarantined
    assert run(parse(values, "people.yaml")).created == manifest.created
    query = {key: value for key, value in settings(path, query="SELECT * FROM people WHERE 1").items() if key != "table"}
    other = run(parse({**values, "source": {"tables": {"people": query}}}, "people.yaml"))
    assert other.digest == manifest.digest and other.version != manifest.version


def test_a_sheet_is_a_table(spark: SparkSession, tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["id", "code", "born"], [1, "007", "1990-05-06"], [2.5, 8, None], [3, "#N/A", None]]:
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    table = {"format": "excel", "path": str(tmp_path / "a.xlsx"), "schema": "code string, id int, born date", "file_column": "file"}
    tables = read_tables(spark, source(t=table))
    rows = [(row["code"], row["id"], str(row["born"]), row["file"]) for row in spark.table("t").collect()]
    assert rows == [("007", 1, "1990-05-06", "a.xlsx")]
    assert tables.malformed is not None
    assert sorted((row["reason"], row["source"].rpartition(":")[2]) for row in tables.malformed.collect()) == [
        ("t: code is the error #N/A, not string", "4"),
        ("t: id is a number with a fraction, not int", "3"),
    ]

"""Databases of SQLite as they are on disk: read without a lock, and refused while rows are beside the file."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tables import raw_table

from pipelines.data.sources.cell_files import CellFault
from pipelines.errors import SourceError
from pipelines.formats.sqlite.database import DatabaseReader, check_closed


def database(path: Path, *statements: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, age INT, name TEXT, face BLOB)")
        connection.executemany(
            "INSERT INTO people VALUES (?, ?, ?, ?)", [(1, 40, "Ann", b"\x00\xff"), (2, "old", "007", None), (3, 1.5, None, None)]
        )
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return str(path)


def read(path: str, *names: str, table: str = "", query: str = "") -> list[tuple[int, Any]]:
    return list(DatabaseReader(table, query)(path, names))


def test_values_have_the_types_that_are_stored(tmp_path: Path) -> None:
    path = database(tmp_path / "a b?#.sqlite", "CREATE VIEW adults AS SELECT name, age FROM people WHERE typeof(age) = 'integer'")
    expected = [(1, ["Ann", 40, b"\x00\xff"]), (2, ["007", "old", None]), (3, [None, 1.5, None])]
    assert read(path, "name", "age", "face", table="people") == expected
    assert read(path, "age", table="PEOPLE") == [(1, [40]), (2, ["old"]), (3, [1.5])]
    assert read(path, "age", table="adults") == [(1, [40])]
    assert read(path, "n", query="SELECT count(*) AS n FROM people") == [(1, [3])]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a b?#.sqlite"]


def test_a_text_that_is_not_utf_8_is_a_fault_of_its_row(tmp_path: Path) -> None:
    path = database(tmp_path / "x.db", "INSERT INTO people(id, name) VALUES (4, CAST(x'ff' AS TEXT))")
    assert read(path, "name", table="people")[-1] == (4, [CellFault("a text that is not UTF-8")])


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["name"], {"table": "poeple"}, "has no table poeple; did you mean people?"),
        (["nmae"], {"table": "people"}, "table people has no column nmae (did you mean name?); it has id, age, name, face."),
        (["a"], {"query": "SELECT 1 AS a, 2 AS a"}, "the query has 2 columns a"),
        (["a"], {"query": "SELEC 1"}, 'SQLite: near "SELEC": syntax error; correct the query'),
        (["a"], {"query": "SELECT random() AS a"}, "not authorized to use function: random; a query only reads tables, without chance"),
        (["a"], {"query": "SELECT datetime('now') AS a"}, "not authorized to use function: datetime; a query only reads tables"),
        (["a"], {"query": "DELETE FROM people"}, "SQLite: not authorized; a query only reads tables"),
        (["a"], {"query": "PRAGMA user_version"}, "not authorized"),
        (["a"], {"query": "ATTACH 'other.db' AS other"}, "not authorized"),
        (["a"], {"query": "SELECT 1 AS a; SELECT 2"}, "one statement at a time"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, names: list[str], options: dict[str, str], message: str) -> None:
    path = database(tmp_path / "x.db")
    with pytest.raises(SourceError) as caught:
        read(path, *names, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"a,b\n" * 300, b"", "cut"])
def test_what_is_no_database_is_one_line(tmp_path: Path, content: bytes | str) -> None:
    path = Path(database(tmp_path / "x.db"))
    path.write_bytes(path.read_bytes()[:5000] if content == "cut" else bytes(content))  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r"x\.db"):
        read(str(path), "name", table="people")


def test_changes_beside_the_file_are_refused_and_the_remedy_works(tmp_path: Path) -> None:
    path = database(tmp_path / "x.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO people(id) VALUES (4)")
        connection.commit()
        with pytest.raises(SourceError, match=r"x\.db-wal has [\d,]+ bytes of changes that are not in the file; close it in"):
            raw_table({"format": "sqlite", "path": path, "table": "people", "schema": "id int"}).state()
        connection.execute(f"VACUUM INTO '{tmp_path}/copy.db'")
        assert len(read(str(tmp_path / "copy.db"), "id", table="people")) == 4
    check_closed(path)  # the last connection has moved the changes into the file
    assert len(read(path, "id", table="people")) == 4
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO people(name) VALUES (?)", [("x" * 5000,)] * 1_000)
        with pytest.raises(SourceError, match=r"x\.db-journal has"):
            check_closed(path)

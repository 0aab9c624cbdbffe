"""`lockstep init` for Excel and SQLite: the table, the types of cells, and what is left out."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_init_tables import draft, features, table_settings

from pipelines.data.sources.cell_files import CellFault
from pipelines.errors import SourceError
from pipelines.formats.excel.workbook import SheetReader
from pipelines.formats.sqlite.draft import read_sqlite
from pipelines.init.tables.cell_tables import type_cells
from pipelines.init.tables.find_table import find_table

ROWS = 400


def write_database(path: Path, *statements: str, rows: int = ROWS) -> str:
    random = np.random.default_rng(0)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE sales (day TEXT, code TEXT, "Unit Price" REAL, y INT, photo BLOB)')
        connection.executemany(
            "INSERT INTO sales VALUES (?, ?, ?, ?, ?)",
            [
                (str(date(2017, 1, 1) + timedelta(days=int(random.integers(300)))), f"00{row % 5}", random.normal(), row % 2, b"x")
                for row in range(rows)
            ],
        )
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return str(path)


def test_a_database_is_drafted_from_its_largest_table(tmp_path: Path) -> None:
    path = write_database(tmp_path / "shop.db", "CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('a')")
    result = draft(path)
    assert table_settings(result) == {
        "format": "sqlite",
        "path": path,
        "table": "sales",
        "schema": "day string, code string, `Unit Price` double, y int",
    }
    assert {"code", "Unit_Price"} <= features(result).keys()
    assert "SELECT day, code, `Unit Price` AS Unit_Price, y FROM toy" in result.sections["source"]["query"]
    assert "the table sales is read, and not notes; join them in source.query" in result.assumptions
    assert "photo: values of several types, or bytes or times of day, so left out" in result.assumptions
    assert [file.name for file in tmp_path.iterdir()] == ["shop.db"]


def test_a_workbook_is_drafted_from_its_first_sheet_with_rows(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book, random = openpyxl.Workbook(), np.random.default_rng(0)
    book.active.title = "Empty"
    sheet = book.create_sheet("Sales")
    sheet.append(["Sales of 2017"])
    sheet.append(["day", "price", "y"])
    for row in range(ROWS):
        sheet.append([datetime(2017, 1, 1) + timedelta(days=int(random.integers(300))), float(random.normal()), row % 2])
    sheet["B5"] = "#N/A"
    book.create_sheet("Notes").append(["a", "b"])
    book.save(tmp_path / "shop.xlsx")
    result = draft(str(tmp_path / "shop.xlsx"))
    assert table_settings(result) == {
        "format": "excel",
        "path": str(tmp_path / "shop.xlsx"),
        "sheet": "Sales",
        "options": {"skipRows": 1},
        "schema": "day date, price double, y int",
    }
    assert "the sheet Sales is read, and not Notes; name another as source.tables.NAME.sheet" in result.assumptions


def test_the_sheet_is_named_beside_visible_sheets_without_rows(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    for state, is_named in [("visible", True), ("hidden", False)]:
        book, random = openpyxl.Workbook(), np.random.default_rng(0)
        for row in [["price", "y"], *([float(random.normal()), row % 2] for row in range(ROWS))]:
            book.active.append(row)
        book.create_sheet("Empty").sheet_state = state
        path = str(tmp_path / f"{state}.xlsx")
        book.save(path)
        result = draft(path)
        sheet = table_settings(result).get("sheet", "")
        assert sheet == ("Sheet" if is_named else "")
        assert len(list(SheetReader(sheet, True, 0, None)(path, ["price", "y"]))) == ROWS, "ETL reads what was drafted"
        assert not any("Empty" in assumption for assumption in result.assumptions)


def test_names_below_merged_cells_are_found_or_told(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["Size", None, "Price", None], ["width", "height", "old", "new"], *([n % 7, n % 5, n / 2, n / 3] for n in range(ROWS))]:
        book.active.append(row)
    book.active.merge_cells("A1:B1")
    book.save(tmp_path / "t.xlsx")
    table = find_table(str(tmp_path / "t.xlsx"))
    assert table is not None and [column.name for column in table.columns] == ["width", "height", "old", "new"]
    assert table.settings["options"] == {"skipRows": 1} and "row 2" in table.doubts[0]
    table = find_table(str(tmp_path / "t.xlsx"), skip_rows=0)
    assert table is not None and [column.name for column in table.columns] == ["Size", "Price"]


@pytest.mark.parametrize(
    ("values", "ddl", "misfits"),
    [
        ([1, 2.0, None], "int", 0),
        ([2**40], "long", 0),
        ([1, 2.5], "double", 0),
        ([True, None], "boolean", 0),
        (["007", "008"], "string", 0),
        (["a", 7.0, "b"], "string", 0),
        ([1.5] * 200 + ["x", CellFault("the error #N/A")], "double", 2),
        ([1.5, "x"], "", 0),
        ([datetime(2017, 1, 2), date(2017, 1, 3)], "date", 0),
        ([datetime(2017, 1, 2, 3)], "timestamp", 0),
        ([time(3)], "", 0),
        ([1.5] * 200 + [10**400], "double", 1),
        ([b"x"], "", 0),
        ([None, ""], "string", 0),
    ],
)
def test_a_column_has_the_type_of_nearly_all_of_its_cells(values: Sequence[Any], ddl: str, misfits: int) -> None:
    column, misfit_count = type_cells("a", values, is_complete=True)
    assert (column.ddl, misfit_count, len(column.values)) == (ddl, misfits, len(values))


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["DROP TABLE sales"], "has no table with rows; give a database that has one"),
        (["DELETE FROM sales"], "has no table with rows; give a database that has one"),
    ],
)
def test_a_database_without_rows_is_one_line(tmp_path: Path, statements: list[str], message: str) -> None:
    path = write_database(tmp_path / "x.db", *statements, rows=3)
    with pytest.raises(SourceError, match=message):
        read_sqlite([path], path, None)


def test_a_workbook_without_rows_or_names_is_one_line(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    for rows, message in [
        ([], "has no visible sheet with rows; give a file that has one"),
        ([["a", "b"]], "has a header, and no rows; give a file that has some"),
        ([["a", "a"], [1, 2]], "has no names of columns .* write them into the first row"),
    ]:
        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(row)
        book.save(tmp_path / "x.xlsx")
        with pytest.raises(SourceError, match=message):
            draft(str(tmp_path / "x.xlsx"))

"""Workbooks as Excel and other programs write them: types of cells, errors, formulas, sheets, headers."""

import re
import zipfile
from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest

from pipelines.data.sources.cell_files import CellFault
from pipelines.errors import SourceError
from pipelines.formats.excel import workbook as workbooks
from pipelines.formats.excel.workbook import SheetReader

openpyxl = pytest.importorskip("openpyxl")

ROWS: list[list[Any]] = [
    ["id", " code ", "paid", 2017],
    [1, "007", date(2017, 1, 2), 1.5],
    [2, 7, datetime(2017, 1, 2, 3, 4, 5), True],
    [None, None, None, None],
    [3.0, "", time(3, 4), "#N/A"],
]


def workbook(path: Path, change: Callable[[Any], None] = lambda book: None, rows: list[list[Any]] = ROWS) -> str:
    book = openpyxl.Workbook()
    book.active.title = "Data"
    for row in rows:
        book.active.append(row)
    change(book)
    book.save(path)
    return str(path)


def edit(path: str, pattern: str, replacement: str, part: str = "xl/worksheets/sheet1.xml") -> str:
    """Replace text in a part of the archive, as another program would have written it."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    changed = re.sub(pattern, replacement, parts[part].decode())
    assert changed != parts[part].decode()
    parts[part] = changed.encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def read(path: str, *names: str, sheet: str = "", header: bool = True, skip: int = 0, null: str | None = None) -> list[tuple[int, Any]]:
    return list(SheetReader(sheet, header, skip, null)(path, names))


def test_cells_have_the_types_that_excel_stores(tmp_path: Path) -> None:
    path = workbook(tmp_path / "a b.xlsx")
    assert read(path, "2017", "id", "code", "paid") == [
        (2, [1.5, 1, "007", datetime(2017, 1, 2)]),
        (3, [True, 2, 7, datetime(2017, 1, 2, 3, 4, 5)]),
        (5, [CellFault("the error #N/A"), 3, None, time(3, 4)]),
    ]
    by_position = read(path, "a", "b", header=False, skip=1)
    assert by_position == [(2, [1, "007"]), (3, [2, 7]), (5, [3, None])]
    assert read(path, "2017", null="#N/A", skip=0)[-1] == (5, [CellFault("the error #N/A")]), "an error is no text"
    assert read(path, "code", null="007")[0] == (2, [None])


def test_dates_of_either_epoch(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904

    path = workbook(tmp_path / "mac.xlsx", change)
    assert read(path, "paid")[0] == (2, [datetime(2017, 1, 2)])
    serial = read(edit(path, r'date1904="1"', 'date1904="0"', "xl/workbook.xml"), "paid")[0][1][0]
    assert serial == datetime(2013, 1, 1), "1,462 days apart"


def test_formulas_have_the_value_that_was_stored(tmp_path: Path) -> None:
    rows = [["a", "b"], [1, "=A2*2"], [2, "=A3*2"], [3, '=""']]
    path = workbook(tmp_path / "f.xlsx", rows=rows)
    with pytest.raises(SourceError, match="3 formulas of sheet Data have no stored value, since the program that wrote them"):
        read(path, "b")
    path = edit(path, r'<c r="B(\d)"><f>([^<]*)</f><v ?/?>(</v>)?</c>', r'<c r="B\1"><f>\2</f><v>\1.5</v></c>')
    path = edit(path, r'<c r="B4"><f>[^<]*</f><v>4.5</v></c>', '<c r="B4" t="str"><f>""</f><v></v></c>')
    assert read(path, "a", "b") == [(2, [1, 2.5]), (3, [2, 3.5]), (4, [3, None])]


def test_a_wrong_dimension_cuts_no_row(tmp_path: Path) -> None:
    path = edit(workbook(tmp_path / "d.xlsx"), r'<dimension ref="[^"]*"', '<dimension ref="A1"')
    assert read(path, "id", "2017")[0] == (2, [1, 1.5])


def test_the_only_visible_sheet_is_read_and_a_hidden_one_by_its_name(tmp_path: Path) -> None:
    def change(book: Any) -> None:
        hidden = book.create_sheet("Secret", 0)
        hidden.sheet_state = "hidden"
        hidden.append(["x"])
        hidden.append([5])

    path = workbook(tmp_path / "h.xlsx", change)
    assert read(path, "id")[0] == (2, [1]) and read(path, "x", sheet="Secret") == [(2, [5])]


def test_merged_cells_have_their_value_in_the_first(tmp_path: Path) -> None:
    path = workbook(tmp_path / "m.xlsx", lambda book: book.active.merge_cells("A2:A3"))
    assert read(path, "id", "code")[:2] == [(2, [1, "007"]), (3, [None, 7])]


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["id"], {"sheet": "data"}, "has no sheet data; did you mean Data?"),
        (["idd"], {}, "the header of sheet Data, row 1, has no column idd (did you mean id?); it has id, code, paid, 2017."),
        (["x"], {"skip": 1}, "the header of sheet Data, row 2, has no column x"),
    ],
)
def test_what_is_not_there_is_one_line(tmp_path: Path, names: list[str], options: dict[str, Any], message: str) -> None:
    path = workbook(tmp_path / "a.xlsx")
    with pytest.raises(SourceError) as caught:
        read(path, *names, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_several_visible_sheets_need_a_name(tmp_path: Path) -> None:
    path = workbook(tmp_path / "s.xlsx", lambda book: book.create_sheet("More"))
    with pytest.raises(SourceError, match=r"has 2 sheets that are not hidden \(Data, More in all\); set sheet to the name of one"):
        read(path, "id")
    assert read(path, "id", sheet="Data")
    twice = workbook(tmp_path / "t.xlsx", rows=[["id", "id"], [1, 2]])
    with pytest.raises(SourceError, match="row 1, has 2 columns id"):
        read(twice, "id")


@pytest.mark.parametrize("content", [b"", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512), b"a,b\n1,2\n", "cut", "zip"])
def test_what_is_no_workbook_is_one_line(tmp_path: Path, content: bytes | str) -> None:
    path = Path(workbook(tmp_path / "a.xlsx"))
    if content == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "a")
    else:
        path.write_bytes(path.read_bytes()[:2000] if content == "cut" else bytes(content))  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r"a\.xlsx is no whole \.xlsx workbook .* save it as \.xlsx, without a password") as caught:
        read(str(path), "id")
    assert "\n" not in str(caught.value)


def test_a_file_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "a.xlsx")
    monkeypatch.setattr(workbooks, "LARGEST_BYTES", 1000)
    with pytest.raises(SourceError, match=r"unpacks to [\d,]+ bytes, and may to 1,000; write it as csv or parquet"):
        read(path, "id")

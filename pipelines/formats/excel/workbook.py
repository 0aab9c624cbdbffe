"""Workbooks of Excel: a sheet of an .xlsx file, read row by row with openpyxl.

Of the libraries that read Excel, openpyxl tells an error such as #N/A from an empty cell, and does not hold a sheet in memory; its texts
it does. Formulas have the values that were stored with them.
"""

import re
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Any
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile, ZipFile

from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.sources.cell_files import CellFault, Row, local_file, positions
from pipelines.errors import ConfigError, SourceError
from pipelines.runtime.compat.openpyxl import sheet_part

LARGEST_BYTES = 8 * 2**30
"""Of all parts of a workbook, unpacked: a small file may unpack to any size."""
_BLOCK_BYTES = 2**20
_MOST_TITLES = 20
"""Rows above a header."""
_FORMULA_WITHOUT_VALUE = re.compile(
    rb"<c\b((?:(?!t=\"str\")[^>])*)>\s*<f\b[^>]*(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>",
)
"""The value of a text may be empty."""


@dataclass(frozen=True)
class SheetReader:
    """Reads a sheet of a workbook."""

    sheet: str
    """Its name; if empty, the only sheet that is not hidden."""
    has_header: bool
    skipped_rows: int
    null_text: str | None

    def __call__(self, path: str, names: Sequence[str]) -> Iterator[Row]:
        with local_file(path) as local, open_workbook(path, local) as workbook:
            sheet = choose_sheet(path, workbook, self.sheet)
            _check_values_are_stored(path, local, sheet)
            where, has_header = list(range(len(names))), self.has_header
            for line, values in self.lines(sheet):
                if has_header:
                    header = [_name(value) for value in values]
                    where, has_header = positions(path, f"the header of sheet {sheet.title}, row {line},", header, names), False
                else:
                    yield line, [values[position] if position < len(values) else None for position in where]

    def lines(self, sheet: Any) -> Iterator[Row]:
        """The rows of an open sheet that have a value, behind those that are skipped, with all of their cells."""
        sheet.reset_dimensions()  # which a program may have written wrongly, and by which rows would be cut
        for line, cells in enumerate(sheet.iter_rows(), 1):
            values = [CellFault(f"the error {cell.value}") if cell.data_type == "e" else cell.value for cell in cells]
            values = [None if value == "" or (self.null_text is not None and value == self.null_text) else value for value in values]
            if line > self.skipped_rows and any(value is not None for value in values):
                yield line, values


def check_openpyxl(place: str) -> None:
    """Raises ConfigError, about what is at `place` of the config or the file system, unless openpyxl is installed."""
    if find_spec("openpyxl") is None:
        raise ConfigError(f"{place}: Excel needs openpyxl, which is not installed; pip install 'lockstep-pipelines[excel]'")


def sheet_headers(path: str, skip_rows: int | None) -> dict[str, tuple[int, list[str]]]:
    """The sheets that are not hidden: of each the line of its header, and the names in it, empty where a cell is; line 0 for a sheet
    without rows. A header is the first row with two values or more behind `skip_rows`. If these are not told, and half of that row is empty
    as merged cells are, it is the row below it, if that has a text in each cell. Raises SourceError as a reader does."""
    headers = {}
    with local_file(path) as local, open_workbook(path, local) as workbook:
        for sheet in _visible_sheets(workbook):
            first_rows = list(islice(SheetReader(sheet.title, False, skip_rows or 0, None).lines(sheet), _MOST_TITLES)) or [(0, [])]
            several = [row for row in first_rows if sum(value is not None for value in row[1]) > 1] or first_rows
            line, values = several[0]
            below = several[1][1] if skip_rows is None and len(several) > 1 else []
            if below and 2 * _different_texts(values) <= len(below) == _different_texts(below):
                line, values = several[1]
            headers[sheet.title] = line, [_name(value) for value in values]
    return headers


def _different_texts(values: Sequence[Any]) -> int:
    """The number of different texts; 0 if there are other values."""
    filled = {value for value in values if value is not None}
    return len(filled) if all(isinstance(value, str) for value in filled) else 0


@contextmanager
def open_workbook(path: str, local: str) -> Iterator[Any]:
    """An open workbook. Raises SourceError if the file is none, or unpacks to too many bytes."""
    from openpyxl import load_workbook  # noqa: PLC0415, only who reads Excel has it installed
    from openpyxl.utils.exceptions import InvalidFileException  # noqa: PLC0415

    faults = (BadZipFile, InvalidFileException, KeyError, ValueError, ParseError, EOFError, zlib.error)
    try:
        with ZipFile(local) as archive:
            unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
        if unpacked_bytes > LARGEST_BYTES:
            raise SourceError(f"{path} unpacks to {unpacked_bytes:,} bytes, and may to {LARGEST_BYTES:,}; write it as csv or parquet")
        with warnings.catch_warnings(), open(local, "rb") as stream:
            warnings.simplefilter("ignore")  # of parts that are no values, such as rules for what may be typed into a cell
            workbook = load_workbook(stream, read_only=True, data_only=True, keep_links=False)
            try:
                yield workbook
            finally:
                workbook.close()
    except faults as error:
        reason = " ".join(str(error).split())[:200]
        raise SourceError(
            f"{path} is no whole .xlsx workbook ({reason}); an .xls file, and one with a password, are of another format: save it as "
            ".xlsx, without a password"
        ) from error


def choose_sheet(path: str, workbook: Any, name: str) -> Any:
    """The sheet of this name; without a name, the only one that is not hidden. Raises SourceError if there is no such sheet."""
    sheets = {sheet.title: sheet for sheet in workbook.worksheets}
    if name in sheets:
        return sheets[name]
    if name:
        raise SourceError(f"{path} has no sheet {name}; {suggestion(name, sheets, f'it has {name_list(sheets)}')}")
    visible = _visible_sheets(workbook)
    if len(visible) != 1:
        titles = name_list(list(sheets))
        raise SourceError(f"{path} has {len(visible)} sheets that are not hidden ({titles} in all); set sheet to the name of one")
    return visible[0]


def _visible_sheets(workbook: Any) -> list[Any]:
    return [sheet for sheet in workbook.worksheets if sheet.sheet_state == "visible"]


def _check_values_are_stored(path: str, local: str, sheet: Any) -> None:
    """Raises SourceError if a formula has no value, as programs write it that do not compute: its cell would seem to be empty."""
    with ZipFile(local) as archive, archive.open(sheet_part(sheet)) as part:
        text, formulas = b"", 0
        while block := part.read(_BLOCK_BYTES):
            text += block
            end = text.rfind(b"</c>") + len(b"</c>") if b"</c>" in text else 0
            formulas += len(_FORMULA_WITHOUT_VALUE.findall(text[:end]))
            text = text[end:]
    if formulas:
        raise SourceError(
            f"{path}: {formulas:,} formulas of sheet {sheet.title} have no stored value, since the program that wrote them does not "
            "compute; open it with Excel or LibreOffice, and save it"
        )


def _name(value: Any) -> str:
    """A column's name in a header: a number, such as a year, without a point."""
    if isinstance(value, CellFault) or value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()

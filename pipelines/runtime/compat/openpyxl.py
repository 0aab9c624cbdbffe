"""Knows the part of a workbook's archive that a sheet is read from."""

from typing import Any

from pipelines.runtime.compat import attribute


def sheet_part(sheet: Any) -> str:
    """The name in the archive of a sheet that openpyxl reads row by row."""
    return str(attribute(sheet, "_worksheet_path"))

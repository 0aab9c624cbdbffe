"""Reads the table of a workbook, for `lockstep init`."""

from pipelines.config.messages.words import name_list
from pipelines.errors import SourceError
from pipelines.formats.excel.workbook import SheetReader, check_openpyxl, sheet_headers
from pipelines.init.tables.cell_tables import table_of_cells
from pipelines.init.tables.find_table import TableKind
from pipelines.init.tables.sample import SampledTable


def read_excel(paths: list[str], data: str, skip_rows: int | None) -> SampledTable:
    """The table of the first visible sheet that has rows. Its names are in the first row of several values behind `skip_rows`, or below it
    if that one has merged cells, and the next more names."""
    check_openpyxl(data)
    visible = sheet_headers(paths[0], skip_rows)
    headers = {name: header for name, header in visible.items() if header[0]}
    if not headers:
        raise SourceError(f"{paths[0]} has no visible sheet with rows; give a file that has one")
    title, (line, header) = next(iter(headers.items()))
    other_names = [name for name in headers if name != title]
    doubts = (
        (f"the sheet {title} is read, and not {name_list(other_names)}; name another as source.tables.NAME.sheet",) if other_names else ()
    )
    options = {"options": {"skipRows": line - 1}} if line > 1 else {}
    if line > 1:
        doubts = (*doubts, f"the names of the columns are in row {line}, and the rows before it are left out; for another, --skip-rows N")
    settings = {"format": "excel", "path": data, **({"sheet": title} if len(visible) > 1 else {}), **options}
    return table_of_cells(settings, paths, SheetReader(title, True, line - 1, None), header, None, doubts)


TABLE_KINDS = (TableKind("excel", (".xlsx", ".xlsm"), read_excel),)

"""SQLite: the rows of a table, a view or a query in each database file."""

from pipelines.data.sources.cells.cell_table import CellTable
from pipelines.data.sources.cells.database import SIDE_FILES, DatabaseReader, check_closed
from pipelines.data.sources.files.files import File


class Sqlite(CellTable):
    @property
    def reader(self) -> DatabaseReader:
        return DatabaseReader(self.settings.table, self.settings.query)

    def select(self, files: list[File]) -> list[File]:
        databases = [file for file in files if not file.path.endswith(SIDE_FILES)]
        for file in databases:
            check_closed(file.path)
        return databases

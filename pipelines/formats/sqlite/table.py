"""SQLite: the rows of a table, a view or a query in each database file."""

from collections.abc import Sequence

from pipelines.data.sources.cell_table import CellTable
from pipelines.data.sources.files.listing import File
from pipelines.formats.sqlite.database import SIDE_FILES, DatabaseReader, check_closed
from pipelines.formats.sqlite.settings import SqliteTable


class Sqlite(CellTable[SqliteTable]):
    @property
    def reader(self) -> DatabaseReader:
        return DatabaseReader(self.settings.table, self.settings.query)

    def select(self, files: Sequence[File]) -> Sequence[File]:
        databases = [file for file in files if not file.path.endswith(SIDE_FILES)]
        for file in databases:
            check_closed(file.path)
        return databases

"""DuckDB: the rows of a table, a view or a query in each database file."""

from collections.abc import Sequence
from functools import cached_property

from pipelines.data.sources.arrow_table import ArrowTable
from pipelines.data.sources.files.files import find
from pipelines.data.sources.files.listing import File
from pipelines.formats.duckdb.database import SIDE_FILE, DatabaseReader, check_closed
from pipelines.formats.duckdb.settings import DuckdbTable


class Duckdb(ArrowTable[DuckdbTable]):
    @property
    def reader(self) -> DatabaseReader:
        return DatabaseReader(self.settings.table, self.settings.query)

    @cached_property
    def files(self) -> Sequence[File]:
        databases = [file for file in find(self.settings.path) if not file.path.endswith(SIDE_FILE)]
        for file in databases:
            check_closed(file.path)
        return databases

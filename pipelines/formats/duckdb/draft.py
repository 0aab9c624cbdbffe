"""Reads a table of a database, for `lockstep init`."""

from pipelines.config.messages.words import name_list
from pipelines.errors import SourceError
from pipelines.formats.duckdb.database import DatabaseReader, table_sizes
from pipelines.init.tables.arrow_samples import table_of_batches
from pipelines.init.tables.find_table import TableKind
from pipelines.init.tables.sample import SampledTable


def read_duckdb(paths: list[str], data: str, _: int | None) -> SampledTable:
    """The table with the most rows."""
    sizes = table_sizes(paths[0])
    if not any(sizes.values()):
        raise SourceError(f"{paths[0]} has no table with rows; give a database that has one")
    name = max(sizes, key=lambda table: sizes[table])
    other_names = [table for table in sizes if table != name]
    doubts = (f"the table {name} is read, and not {name_list(other_names)}; join them in source.query",) if other_names else ()
    return table_of_batches({"format": "duckdb", "path": data, "table": name}, paths, DatabaseReader(name, ""), doubts)


TABLE_KINDS = (TableKind("duckdb", (".duckdb", ".ddb"), read_duckdb),)

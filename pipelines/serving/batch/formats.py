"""Compares the files of an input with the format of their table, by their first bytes: Parquet also stands for tables of text."""

import logging
from contextlib import suppress

from pipelines.config import Config
from pipelines.config.source.source import Table
from pipelines.config.source.table_base import TableSettings
from pipelines.data.sources.files import files
from pipelines.data.sources.signatures import PARQUET, binary_format
from pipelines.errors import SourceError

log = logging.getLogger(__name__)

_TEXTS = ("csv", "json", "text")
_MOST_FILES = 64
"""Files of a table that are opened, in the order of their names."""


def detect_formats(config: Config, names: tuple[str, ...]) -> Config:
    """The config with the format `parquet` for those of its tables, all if there are no `names`, that are text and whose files are Parquet.

    Raises SourceError if files are of a format that no table has, are of several formats, or are not Parquet where their table is.
    """
    tables = dict(config.source.tables)
    for name, table in tables.items():
        if not names or name in names:
            with suppress(*(() if names else (SourceError,))):  # of a table that may not be read at all
                tables[name] = _detect_format(name, table)
    return config.model_copy(update={"source": config.source.model_copy(update={"tables": tables})})


def _detect_format(name: str, table: TableSettings) -> TableSettings:
    if not isinstance(table, Table) or table.format not in (*_TEXTS, "parquet"):
        return table
    formats = {file.path: binary_format(file.path) for file in files.find(table.path)[:_MOST_FILES]}
    if other := next((path for path, kind in formats.items() if kind not in ("", PARQUET)), None):
        raise SourceError(f"{other} is a file of {formats[other]}; write it as csv, json or parquet")
    parquet = [path for path, kind in formats.items() if kind == PARQUET]
    if table.format == "parquet":
        if strangers := [path for path in formats if path not in parquet]:
            raise SourceError(
                f"{strangers[0]} is not Parquet, the format of source.tables.{name}; for text, set --source.tables.{name}.format csv "
                f"and --source.tables.{name}.schema 'column type, …'"
            )
        return table
    if parquet and len(parquet) < len(formats):
        text = next(path for path in formats if path not in parquet)
        raise SourceError(f"{parquet[0]} is Parquet and {text} is not; predict them one after the other")
    if parquet:
        log.info("%s is Parquet, and is read as that, not as %s", table.place, table.format)
    return table.model_copy(update={"format": "parquet", "options": {}}) if parquet else table

"""Makes the raw tables of a config."""

from typing import Any

from pipelines.config.plugins import import_class
from pipelines.config.source import Source, TableSettings
from pipelines.config.table_formats import FORMATS
from pipelines.data.sources.base import RawTable
from pipelines.errors import ConfigError

RawTables = dict[str, RawTable[Any]]
"""By name."""


def raw_tables(source: Source) -> RawTables:
    """The config's tables, not read yet. Raises ConfigError if the class of one cannot be imported."""
    return {name: _raw_table(name, settings) for name, settings in source.tables.items()}


def _raw_table(name: str, settings: TableSettings) -> RawTable[Any]:
    built_in = FORMATS.get(settings.format)
    path = built_in.implementation if built_in else settings.implementation
    try:
        table_class = import_class(path, RawTable, "a raw table")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"source.tables.{name}.format: {error}") from error
    return table_class(name, settings)

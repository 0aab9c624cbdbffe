"""Settings of the format `tar`."""

from typing import ClassVar, Literal

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class TarTable(Table):
    """A row with `path` and `content` for each file in an archive. It has the settings of every table that Spark reads, but no schema."""

    implementation: ClassVar[str] = "pipelines.formats.tar.table:Tar"
    own_rules: ClassVar[Format] = Format(rows_are_files=True)
    format: Literal["tar"] = "tar"

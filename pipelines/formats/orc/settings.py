"""Settings of the format `orc`."""

from typing import ClassVar, Literal

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class OrcTable(Table):
    """ORC files. It has the settings of every table that Spark reads; the types are those of the files."""

    implementation: ClassVar[str] = "pipelines.formats.orc.table:Orc"
    own_rules: ClassVar[Format] = Format()
    format: Literal["orc"] = "orc"

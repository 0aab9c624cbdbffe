"""Settings of the format `avro`."""

from typing import ClassVar, Literal

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class AvroTable(Table):
    """Records of Avro files. It has the settings of every table that Spark reads; the types are those of the files."""

    implementation: ClassVar[str] = "pipelines.formats.avro.table:Avro"
    own_rules: ClassVar[Format] = Format(rows_are_of_one_file=True)
    format: Literal["avro"] = "avro"

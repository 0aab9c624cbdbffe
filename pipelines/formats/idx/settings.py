"""Settings of the format `idx`."""

from typing import ClassVar, Literal

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class IdxTable(Table):
    """The files of MNIST and its kin, joined by row number. It has the settings of every table that Spark reads."""

    implementation: ClassVar[str] = "pipelines.formats.idx.table:Idx"
    own_rules: ClassVar[Format] = Format()
    format: Literal["idx"] = "idx"

"""Settings of the format `hdf5`."""

from typing import ClassVar, Literal

from pydantic import Field

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class Hdf5Table(Table):
    """Datasets of HDF5 files, a column each, whose first axis is that of the rows. It has the settings of every table that Spark reads."""

    implementation: ClassVar[str] = "pipelines.formats.hdf5.table:Hdf5"
    own_rules: ClassVar[Format] = Format(rows_are_of_one_file=True)
    format: Literal["hdf5"] = "hdf5"
    group: str = Field("", exclude_if=lambda group: not group)
    """The group whose datasets are the columns, or a dataset whose fields are; by default the root of the file."""

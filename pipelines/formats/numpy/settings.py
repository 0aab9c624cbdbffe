"""Settings of the format `numpy`."""

from typing import ClassVar, Literal

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class NumpyTable(Table):
    """Arrays of .npy and .npz files, whose first axis is that of the rows. A plain array is the column `value`, a structured one has a
    column for each field, and a .npz file one for each array. It has the settings of every table that Spark reads."""

    implementation: ClassVar[str] = "pipelines.formats.numpy.table:Numpy"
    own_rules: ClassVar[Format] = Format(rows_are_of_one_file=True)
    format: Literal["numpy"] = "numpy"

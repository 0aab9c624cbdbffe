"""Settings of the format `huggingface_dataset`."""

from typing import ClassVar, Literal

from pydantic import Field

from pipelines.config.source.source import Table
from pipelines.config.source.table_settings import Format


class HuggingfaceDatasetTable(Table):
    """A folder that `save_to_disk` of Hugging Face's library `datasets` wrote, read without that library. It has the settings of every
    table that Spark reads; the types are those of the dataset."""

    implementation: ClassVar[str] = "pipelines.formats.huggingface_dataset.table:HuggingfaceDataset"
    own_rules: ClassVar[Format] = Format()
    format: Literal["huggingface_dataset"] = "huggingface_dataset"
    split_column: str = Field("split", pattern=r"^[A-Za-z]\w{0,99}$")
    """Of a folder with several splits: the column that has the name of a row's split."""

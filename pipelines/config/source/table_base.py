"""Base class of the settings of all raw tables."""

from typing import Any, ClassVar

from pipelines.config.section import Section


class TableSettings(Section):
    """Base class of the settings of all raw tables. Derive your own source from it, or from `FileTableSettings` if it reads files."""

    implementation: ClassVar[str]
    """`module:Class` of the `pipelines.data.sources.base.RawTable` that these settings configure; imported after Spark has started."""
    format: str
    """One of the built-in formats, such as `csv`, or `module:Class` of your own settings."""

    @property
    def place(self) -> Any:
        """How messages refer to the data of the table."""
        return self.format

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files, if the table consists of files."""
        return ()

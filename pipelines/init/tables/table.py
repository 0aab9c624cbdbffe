"""A table before anything is chosen: its files, how they are read, and its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.data.features.auto.column_facts import ColumnFacts


@dataclass(frozen=True)
class SampledTable:
    """A raw table, whose columns are those of a sample."""

    settings: Mapping[str, Any]
    """The table in `source.tables`."""
    columns: Sequence[ColumnFacts]
    rows: int
    """About how many rows there are in all."""
    is_complete: bool
    """Whether the sample has all rows."""
    splits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of files that are splits by their names: the table in `source.tables` of each. Then `settings` is not used."""
    select: str = "*"
    """What the query selects before any other expression: of lines of text, their values."""
    broken: float = 0.0
    """Share of the records that are broken."""
    doubts: tuple[str, ...] = ()
    raw_names: Mapping[str, str] = field(default_factory=dict)
    """Names of columns in the files, by those that the query gives them."""

    derived: tuple[str, ...] = ()
    """Columns that are in no file: the query makes them of others."""

    def column(self, name: str) -> ColumnFacts:
        return next(column for column in self.columns if column.name == name)

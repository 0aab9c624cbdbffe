"""The result of the pass over the rows."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.data.features.statistics import Statistics
from pipelines.data.versions.data_profile import ValueCounts
from pipelines.data.versions.manifest import SPLITS


@dataclass(frozen=True)
class RowSummary:
    """The result of one pass over the rows."""

    rows: dict[int, int]
    """Rows that are not refused, by the index of the split; every split has an entry."""
    refused: dict[str, int]
    """Refused rows, by reason."""
    statistics: dict[str, Statistics]
    """Statistics of the training split's raw columns."""
    schema: pa.Schema
    """The query's output."""
    samples: dict[str, pa.Table] = field(default_factory=dict)
    """Rows of each split, as `row_sample` keeps them."""
    contents: np.ndarray = field(default_factory=lambda: np.empty((0, len(SPLITS)), np.int64))
    """Rows of a sample of contents, by split, as `leakage` counts them."""
    values: dict[str, ValueCounts] = field(default_factory=dict)
    """Rows by value and split, of the raw columns that have few values."""
    missing: dict[str, int] = field(default_factory=dict)
    """NULL and NaN of all splits, by the raw columns that were asked for."""
    keys_repeat: bool = False
    """Whether rows that are not refused seem to have the same key: their hashes are equal."""

    @property
    def query_rows(self) -> int:
        return sum(self.rows.values()) + sum(self.refused.values())

"""Knowledge of an ETL about its data beyond the manifest: for pages, and no part of a version or its digest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from pipelines.config import Config
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.raw_inputs import Sources

TEXT_LENGTH = 120
"""Characters that a sample keeps of a text."""


def has_marks_only(sampled: pa.DataType, raw: pa.DataType) -> bool:
    """Whether a sample has no values of a column, and only says which rows have one: so it is of bytes and nested values."""
    return pa.types.is_boolean(sampled) and not pa.types.is_boolean(raw)


@dataclass(frozen=True)
class SparkStage:
    """One of Spark's stages, as Spark's own status has it."""

    stage: str
    """The stage of the ETL that it belongs to, such as `fit`."""
    number: int
    call: str
    """Spark's name of it: the call, with its file and line."""
    tasks: int
    seconds: float
    """From the submission to the end."""
    task_seconds: float
    """Of all tasks together."""
    median_seconds: float
    longest_seconds: float
    """Of a task."""
    rows_read: int
    """From sources, caches and shuffles."""
    spilled_bytes: int
    """Written to disk for lack of memory."""
    shuffled_bytes: int

    @property
    def skew(self) -> float:
        """The longest task over the median; 1 where the tasks are too short to tell."""
        return self.longest_seconds / max(self.median_seconds, 0.1) if self.longest_seconds > 0.1 else 1.0


@dataclass(frozen=True)
class ValueCounts:
    """All rows of a column with few values, counted."""

    values: tuple[str, ...]
    """As text, at most TEXT_LENGTH characters of each; those with most rows in train first."""
    rows: np.ndarray
    """int64 of shape (values, splits)."""
    missing: np.ndarray
    """Rows with NULL, by split."""


@dataclass(frozen=True)
class Survey:
    config: Config
    manifest: Manifest
    sources: Sources
    samples: Mapping[str, pa.Table]
    """Rows of each split: raw columns, with the beginnings of texts, the lengths of lists, and True for bytes and nested values."""
    contents: np.ndarray
    """Rows of a sample of contents by split, int64 of shape (contents, splits). Rows of one content have the same features."""
    refused: Mapping[str, str]
    """A refused record for each reason."""
    seconds: Mapping[str, float]
    """By stage of the ETL."""
    spark: tuple[SparkStage, ...] = ()
    event_log: str = ""
    """Address of Spark's event log; empty if it writes none."""
    counts: Mapping[str, ValueCounts] = field(default_factory=dict)
    """By raw column, those that have been counted in all splits; of others there is only the sample."""


Files = Mapping[str, str]
"""Contents of files by name."""
Page = Callable[[Survey], Files]
"""Draws the files about the data that the run of an ETL keeps."""

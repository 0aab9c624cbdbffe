"""Base class of the details of an evaluation, and their result."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.data.versions.schema import ROW_NUMBERS
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.eval_samples import readable_values, sample_features
from pipelines.tasks.details.parts import Part, SelectedRows, Sums, sampling_keys
from pipelines.tasks.details.slices import Slices
from pipelines.tasks.values import Value

Columns = Mapping[str, Sequence[Any]]
"""A table: values by column."""

SAMPLED_ROWS = 2_000
"""Rows of a split that are kept as a sample, chosen by their row numbers. A split with fewer rows is kept whole."""
WORST_ROWS = 24
OUTCOME_ROWS = 20_000
"""Rows whose outcomes are kept, so that those of two models on the same rows can be compared."""


@dataclass(frozen=True)
class EvaluationData:
    """The details of one split."""

    split: str
    summary: dict[str, Any]
    """`kind` names the class of details, `rows` is the number of rows, `metrics` their values; JSON values throughout."""
    tables: dict[str, Columns]


class Details(ABC):
    """Collects the rows of a split, and turns them into tables. `update` of a derived class adds to `sums` and `slices`, and calls
    `_offer_sample` and `_offer_worst`."""

    kind: str

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if a column of `task.slices` has no fixed set of values."""
        self.data = data
        self.slices = Slices(settings.slices, data)
        self.sums, self.sample, self.worst = Sums(), SelectedRows(SAMPLED_ROWS), SelectedRows(WORST_ROWS)
        self.outcomes = SelectedRows(OUTCOME_ROWS)

    @property
    def parts(self) -> list[Part]:
        """Everything that is collected, to be sent to another worker. Its size is bounded."""
        return [self.sums, self.sample, self.worst, self.outcomes, *self.slices.parts]

    def expect(self, rows: int) -> None:  # noqa: B027  # most details are of one size for any number of rows
        """Called before the first row: so many rows will come, on all workers together."""

    def merge(self, parts_of_next_shard: list[Part]) -> None:
        """Add the parts of the next shard."""
        for part, other in zip(self.parts, parts_of_next_shard, strict=True):
            part.merge(other)  # type: ignore[arg-type]  # both have the same class

    @abstractmethod
    def update(self, output: Tensor, batch: Batch) -> None:
        """Add rows: the model's output on the CPU, and their batch, with ROW_NUMBERS."""

    @abstractmethod
    def tables(self) -> dict[str, Columns]:
        """The tables of this kind; `result` adds those of slices and of the worst rows."""

    def summary(self) -> dict[str, Any]:
        """Facts that are in no table, as JSON values."""
        return {}

    def result(self, split: str, metrics: Mapping[str, Value], entries: Mapping[str, Any] | None = None) -> EvaluationData:
        """All that was collected of a split, with the values of its metrics. `entries` are entries of the summary."""
        columns, shapes = readable_values(self.worst.columns, self.data)
        worst: Columns = {"row": self.worst.rows.tolist(), "loss": (-self.worst.keys).tolist(), **columns}
        outcomes_by_name = {name: values.tolist() for name, values in self.outcomes.columns.items()}
        outcomes: Columns = {"row": self.outcomes.rows.tolist(), **outcomes_by_name} if outcomes_by_name else {}
        tables: dict[str, Columns] = {**self.tables(), "worst": worst, "outcomes": outcomes, **self.slices.tables()}
        summary = {"kind": self.kind, "split": split, "metrics": dict(metrics), "shapes": shapes, **(entries or {}), **self.summary()}
        return EvaluationData(split, summary, {name: table for name, table in tables.items() if table})

    def _offer_sample(self, batch: Batch, columns: Mapping[str, np.ndarray]) -> None:
        """Offer the rows of a batch to the sample, with these values."""
        rows = row_numbers(batch)
        self.sample.offer(sampling_keys(rows), rows, lambda places: {name: values[places] for name, values in columns.items()})

    def _offer_outcomes(self, batch: Batch, columns: Mapping[str, np.ndarray]) -> None:
        """Offer the outcomes of a batch of rows: by the name of the metric that is their mean, or as the table of metrics needs them."""
        rows = row_numbers(batch)
        self.outcomes.offer(sampling_keys(rows), rows, lambda places: {name: values[places] for name, values in columns.items()})

    def _offer_worst(self, losses: np.ndarray, batch: Batch, columns: Mapping[str, np.ndarray]) -> None:
        """Offer the rows of a batch to the worst ones, with these values and readable features."""

        def values(places: np.ndarray) -> dict[str, np.ndarray]:
            return {**{name: column[places] for name, column in columns.items()}, **sample_features(batch, places, self.data)}

        # NaN sorts last, but such a row is the worst.
        self.worst.offer(-np.nan_to_num(losses, nan=np.inf), row_numbers(batch), values)


def row_numbers(batch: Batch) -> np.ndarray:
    """Row numbers within the split, int64 of shape (rows,)."""
    return batch[ROW_NUMBERS].cpu().numpy()

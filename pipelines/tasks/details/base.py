"""Base class of the details of an evaluation, and their result: readable rows, sums by `task.slices`, explanations of outputs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.config.messages.words import suggestion
from pipelines.data.versions.schema import FREE, ROW_NUMBERS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.parts import Part, SelectedRows, Sums, sampling_keys
from pipelines.tasks.metrics.table import Value

Columns = Mapping[str, Sequence[Any]]
"""A table: values by column."""

SHOWN_FEATURES = 5
"""Features of a row whose contributions are kept, the largest first."""
MOST_VALUES = 1_000
"""Of a column of `task.slices`: with more, slices would have too few rows, and the sums would grow."""
SAMPLED_ROWS = 2_000
"""Rows of a split that are kept as a sample, chosen by their row numbers; a split with fewer is kept whole."""
WORST_ROWS = 24
OUTCOME_ROWS = 20_000
"""Rows whose outcomes are kept, so that those of two models on the same rows can be compared."""
SHOWN_BYTES = 16 * 2**10
"""The most of one value of a row; a larger image keeps every n-th row and column."""
MOST_COLUMNS = 40
PREFIX = "feature."
"""Beginning of the names of a table's columns that hold a row's features."""
_INPUT = "input."


@dataclass(frozen=True)
class Explanation:
    """The part of each feature in the outputs of a model, and in those of a few rows."""

    features: tuple[str, ...]
    importance: Mapping[str, np.ndarray]
    """Measures of the whole model by name, float64 of shape (features,); features are sorted by the first."""
    contributions: np.ndarray
    """float64 of shape (rows, features): what each adds to a row's output, compared with the mean over the training rows."""

    @classmethod
    def sum_by_feature(cls, names: Sequence[str], importance: Mapping[str, Tensor], contributions: np.ndarray) -> "Explanation":
        """Sum over inputs of the same name. `importance` is of shape (inputs,), `contributions` of shape (rows, inputs)."""
        features = tuple(dict.fromkeys(names))
        belongs = np.array([[name == feature for feature in features] for name in names], float)
        return cls(features, {name: values.numpy() @ belongs for name, values in importance.items()}, contributions @ belongs)

    def tables(self, rows: Sequence[int]) -> dict[str, Mapping[str, Sequence[Any]]]:
        """`importance`, and `contributions` of the rows of these numbers."""
        by_first = np.argsort(-next(iter(self.importance.values())), kind="stable")
        importance = {name: values[by_first].tolist() for name, values in self.importance.items()}
        largest = np.argsort(-np.abs(self.contributions), axis=1, kind="stable")[:, :SHOWN_FEATURES]
        return {
            "importance": {"feature": [self.features[place] for place in by_first], **importance},
            "contributions": {
                "row": np.repeat(rows, largest.shape[1]).tolist(),
                "feature": [self.features[place] for place in largest.ravel()],
                "contribution": np.take_along_axis(self.contributions, largest, 1).ravel().tolist(),
            },
        }


class Slices:
    """Sums of quantities of rows, by column and value."""

    def __init__(self, names: Sequence[str], data: Data) -> None:
        """Raises ConfigError if a name is not a column of single indices."""
        self._data = data
        columns = {column.name: column for column in (*data.columns, *data.carried)}
        for name in names:
            if name not in columns:
                remedy = suggestion(name, columns, "add it to dataset.passthrough")
                raise ConfigError(f"task.slices has {name}, which is no column of the dataset; {remedy}")
            fault, cardinality = "", columns[name].cardinality
            if columns[name].shape:
                fault = f"has shape {columns[name].shape} per row"
            elif cardinality is None:
                fault = "is a number"
            elif cardinality > MOST_VALUES:
                fault = f"has {cardinality:,} values"
            if fault:
                raise ConfigError(
                    f"task.slices has {name}, which {fault}; a slice is a column with at most {MOST_VALUES:,} values: "
                    "carry it with the encoder vocabulary or quantile, in dataset.passthrough"
                )
        self._sums = {name: Sums() for name in names}
        self._counts = {name: columns[name].cardinality or 0 for name in names}

    @property
    def parts(self) -> list[Sums]:
        return list(self._sums.values())

    def update(self, batch: Batch, quantities: Mapping[str, np.ndarray]) -> None:
        """Add rows, with float64 arrays of shape (rows,) by name."""
        for name, sums in self._sums.items():
            values, count = batch[name].cpu().numpy().astype(np.int64), self._counts[name]
            sums.add("rows", np.bincount(values, minlength=count))
            for quantity, added in quantities.items():
                sums.add(quantity, np.bincount(values, weights=added, minlength=count))

    def tables(self) -> dict[str, dict[str, list]]:
        """One table `slices`: column, value, rows, and the sums; values without rows are left out."""
        table: dict[str, list] = {}
        for name, sums in self._sums.items():
            if not sums.arrays:
                continue
            filled = np.flatnonzero(sums.arrays["rows"])
            labels = self._data.names(name)
            table.setdefault("column", []).extend([name] * len(filled))
            table.setdefault("value", []).extend(labels[number] if number < len(labels) else str(number) for number in filled.tolist())
            for quantity, values in sums.arrays.items():
                table.setdefault(quantity, []).extend(values[filled].tolist())
        return {"slices": table} if table else {}


@dataclass(frozen=True)
class EvaluationData:
    """The details of one split."""

    split: str
    summary: dict[str, Any]
    """`kind` names the class of details, `rows` is the number of rows, `metrics` their values; JSON values throughout."""
    tables: dict[str, Columns]


class Details(ABC):
    """Collects the rows of a split, and turns them into tables. `update` of a derived class adds to `sums` and `slices`, and calls
    `_offer` and `_offer_worst`."""

    kind: str

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if a column of `task.slices` has no fixed set of values."""
        self.data = data
        self.slices = Slices(settings.slices, data)
        self.sums, self.sample, self.worst = Sums(), SelectedRows(SAMPLED_ROWS), SelectedRows(WORST_ROWS)
        self.outcomes = SelectedRows(OUTCOME_ROWS)
        self._has_weights = settings.class_weights != "none" or bool(settings.sample_weight)
        self.keeps_inputs = False
        """Whether the worst rows are kept as the model takes them, to be explained."""

    @property
    def parts(self) -> list[Part]:
        """Everything that is collected, to be sent to another worker. Its size is bounded."""
        return [self.sums, self.sample, self.worst, self.outcomes, *self.slices.parts]

    def expect(self, rows: int) -> None:  # noqa: B027  # most details are of one size for any number of rows
        """Called before the first row: so many rows will come, on all workers together."""

    def merge(self, parts_of_next_shard: list[Part]) -> None:
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

    @property
    def worst_inputs(self) -> Batch:
        """The features of the worst rows, if they `keeps_inputs`."""
        columns = self.worst.columns.items()
        return {name.removeprefix(_INPUT): torch.from_numpy(values) for name, values in columns if name.startswith(_INPUT)}

    def result(
        self, split: str, metrics: Mapping[str, Value], entries: Mapping[str, Any] | None = None, explanation: Explanation | None = None
    ) -> EvaluationData:
        """All that was collected of a split, with the values of its metrics. `entries` are entries of the summary; the explanation is that
        of the worst rows."""
        visible = {name: values for name, values in self.worst.columns.items() if not name.startswith(_INPUT)}
        columns, shapes = readable_values(visible, self.data)
        worst: Columns = {"row": self.worst.rows.tolist(), "loss": (-self.worst.keys).tolist(), **columns}
        # A loss with weights is no mean of the losses of rows.
        outcomes_by_name = {
            name: values.tolist() for name, values in self.outcomes.columns.items() if not (self._has_weights and name == "loss")
        }
        outcomes: Columns = {"row": self.outcomes.rows.tolist(), **outcomes_by_name} if outcomes_by_name else {}
        explained = explanation.tables(worst["row"]) if explanation else {}
        tables: dict[str, Columns] = {**self.tables(), "worst": worst, "outcomes": outcomes, **self.slices.tables(), **explained}
        summary = {"kind": self.kind, "split": split, "metrics": dict(metrics), "shapes": shapes, **(entries or {}), **self.summary()}
        return EvaluationData(split, summary, {name: table for name, table in tables.items() if table})

    def _offer(self, part: SelectedRows, batch: Batch, columns: Mapping[str, np.ndarray]) -> None:
        """Offer the rows of a batch to the sample or the outcomes, with these values. Outcomes are by the name of the metric that is their
        mean, or as the table of metrics needs them."""
        rows = row_numbers(batch)
        part.offer(sampling_keys(rows), rows, lambda places: {name: values[places] for name, values in columns.items()})

    def _offer_worst(self, losses: np.ndarray, batch: Batch, columns: Mapping[str, np.ndarray]) -> None:
        """Offer the rows of a batch to the worst ones, with these values and readable features."""

        def values(places: np.ndarray) -> dict[str, np.ndarray]:
            visible = {**{name: column[places] for name, column in columns.items()}, **sample_features(batch, places, self.data)}
            inputs = self.data.features if self.keeps_inputs else ()
            return {**visible, **{_INPUT + column.name: batch[column.name].cpu().numpy()[places] for column in inputs}}

        # NaN sorts last, but such a row is the worst.
        self.worst.offer(-np.nan_to_num(losses, nan=np.inf), row_numbers(batch), values)


def row_numbers(batch: Batch) -> np.ndarray:
    """Row numbers within the split, int64 of shape (rows,)."""
    return batch[ROW_NUMBERS].cpu().numpy()


def sample_features(batch: Batch, places: np.ndarray, data: Data) -> dict[str, np.ndarray]:
    """The encoded features of a few rows of a batch, thinned to SHOWN_BYTES per row at most: the beginning of a text, every n-th value
    along each long dimension of others."""
    index = torch.from_numpy(places)
    samples = {}
    for column in data.features[:MOST_COLUMNS]:
        tensor = batch[column.name]
        values = tensor[index.to(tensor.device)].cpu().numpy()
        if column.cardinality is not None:
            values = values[:, : SHOWN_BYTES // values.itemsize] if values.ndim == 2 or column.counted else values
        else:
            while len(values) and values[0].nbytes > SHOWN_BYTES and max(values.shape[1:]) > 1:
                longest = max(range(1, values.ndim), key=lambda axis: values.shape[axis])
                near = [axis for axis in range(1, values.ndim) if values.shape[axis] * 2 > values.shape[longest]]
                values = values[tuple(slice(None, None, 2) if axis in near else slice(None) for axis in range(values.ndim))]
        samples[PREFIX + column.name] = values
    return samples


def readable_values(columns: dict[str, np.ndarray], data: Data) -> tuple[dict[str, list[Any]], dict[str, list[int]]]:
    """Convert columns to plain values, and return the shapes of pictures, which become flat lists of numbers."""
    features = {PREFIX + column.name: column for column in data.features}
    values: dict[str, list[Any]] = {}
    shapes: dict[str, list[int]] = {}
    for name, column_values in columns.items():
        column = features.get(name)
        if column is None:
            values[name] = column_values.tolist()
        elif not column.shape:
            values[name] = [str(value) if isinstance(value, str) else value for value in data.raw(column.name, column_values).tolist()]
            if len({type(value) for value in values[name] if value is not None}) > 1:
                values[name] = [None if value is None else str(value) for value in values[name]]
        elif column.cardinality is not None:
            values[name] = [_words(row, column, data) for row in column_values]
        else:
            shapes[name] = list(column_values.shape[1:])
            values[name] = column_values.reshape(len(column_values), -1).tolist()
    return values, shapes


def _words(row: np.ndarray, column: TensorColumn, data: Data) -> str:
    """The words of a text or the elements of an array, in their order; ? for unknown ones. Of terms, those that most texts have first,
    between commas."""
    indices = row.reshape(-1)
    if column.counted:
        return ", ".join(data.raw(column.name, row[row[:, 0] != FREE, 0]).tolist())
    if data.tokens:
        return b"".join(data.tokens[number] or b"\n\n" for number in indices.tolist()).decode(errors="replace")
    return " ".join("?" if word is None else str(word) for word in data.raw(column.name, indices[indices != FREE]).tolist())

"""Sums for each value of some columns: which rows a model serves worse than others."""

from collections.abc import Mapping, Sequence

import numpy as np

from pipelines.config.messages.did_you_mean import suggestion
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.parts import Sums

MOST_VALUES = 1_000
"""Values of a column: with more, slices would have too few rows, and the sums would grow."""


def _fault(column: TensorColumn) -> str:
    """Why rows cannot be grouped by the column; empty if they can."""
    if column.shape:
        return f"has shape {column.shape} per row"
    if column.cardinality is None:
        return "is a number"
    return f"has {column.cardinality:,} values" if column.cardinality > MOST_VALUES else ""


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
            if fault := _fault(columns[name]):
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

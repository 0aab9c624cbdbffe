"""Readable features of a row: numbers and categories in the query's units, the words of a text, an image or a spectrogram."""

from typing import Any

import numpy as np
import torch

from pipelines.data.versions.schema import FREE, TensorColumn
from pipelines.tasks.data import Batch, Data

SHOWN_BYTES = 16 * 2**10
"""The most of one value of a row; a larger image keeps every n-th row and column."""
MOST_COLUMNS = 40
PREFIX = "feature."
"""Beginning of the names of a table's columns that hold a row's features."""


def sample_features(batch: Batch, places: np.ndarray, data: Data) -> dict[str, np.ndarray]:
    """The encoded features of a few rows of a batch, thinned."""
    index = torch.from_numpy(places)
    samples = {}
    for column in data.features[:MOST_COLUMNS]:
        values = batch[column.name]
        samples[PREFIX + column.name] = _thin(values[index.to(values.device)].cpu().numpy(), column)
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
    """The words of a text or the elements of an array, in their order; ? for unknown ones."""
    indices = row.reshape(-1)
    if data.tokens:
        return b"".join(data.tokens[number] or b"\n\n" for number in indices.tolist()).decode(errors="replace")
    return " ".join("?" if word is None else str(word) for word in data.raw(column.name, indices[indices != FREE]).tolist())


def _thin(values: np.ndarray, column: TensorColumn) -> np.ndarray:
    """Values of shape (rows, …) with at most SHOWN_BYTES per row: the beginning of a text, every n-th value along each long dimension of
    others."""
    if column.cardinality is not None:
        return values[:, : SHOWN_BYTES // values.itemsize] if values.ndim == 2 else values
    while len(values) and values[0].nbytes > SHOWN_BYTES and max(values.shape[1:]) > 1:
        longest = max(range(1, values.ndim), key=lambda axis: values.shape[axis])
        near = [axis for axis in range(1, values.ndim) if values.shape[axis] * 2 > values.shape[longest]]
        values = values[tuple(slice(None, None, 2) if axis in near else slice(None) for axis in range(values.ndim))]
    return values

"""Turns values into numbers of bins or categories, so that splits can be counted against each other."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.data.features.raw import is_number, is_text, numbers

MISSING = -1
"""The number of a NULL or NaN."""
FREE_TEXT_SHARE = 0.5
"""Texts of which more than this share are different are no categories."""


def is_numeric(values: pa.ChunkedArray | pa.Array) -> bool:
    return is_number(values.type) and not types.is_boolean(values.type)


def count_distinct(values: pa.ChunkedArray) -> int:
    """Different values, without NULL."""
    return len(pc.unique(values.drop_null()))


def is_free_text(values: pa.ChunkedArray) -> bool:
    rows = len(values) - values.null_count
    return is_text(values.type) and rows >= 20 and count_distinct(values) > FREE_TEXT_SHARE * rows


def as_numbers(values: pa.ChunkedArray) -> np.ndarray:
    """float64 with NaN for NULL, shape (rows,): numbers as they are, times as days since 1970, texts as their length."""
    array = values.combine_chunks()
    if is_number(array.type):
        return numbers(array)
    if types.is_temporal(array.type):
        timezone = array.type.tz if types.is_timestamp(array.type) else None
        return numbers(array.cast(pa.timestamp("us", timezone)).cast(pa.int64())) / 86_400e6
    return numbers(pc.utf8_length(array.cast(pa.string())))


def as_texts(values: pa.ChunkedArray) -> list[str | None]:
    """Values as categories, with None for NULL and NaN."""
    if types.is_boolean(values.type):
        return [None if value is None else str(value).lower() for value in values.to_pylist()]
    return [None if value is None or value != value else str(value) for value in values.to_pylist()]


@dataclass(frozen=True)
class Bins:
    """Quantile bins of numbers."""

    edges: np.ndarray
    """Inner edges, ascending."""

    @classmethod
    def fit(cls, values: np.ndarray, bins: int) -> "Bins":
        finite = values[np.isfinite(values)]
        return cls(np.unique(np.quantile(finite, np.arange(1, bins) / bins)) if len(finite) else np.empty(0))

    def codes(self, values: np.ndarray) -> np.ndarray:
        """The bin of each number, MISSING for NaN."""
        return np.where(np.isnan(values), MISSING, np.searchsorted(self.edges, values, side="right"))


@dataclass(frozen=True)
class Categories:
    """Categories, the most frequent first; all others count as one more."""

    names: tuple[str, ...]

    @classmethod
    def fit(cls, values: list[str | None], most: int) -> "Categories":
        names, counts = np.unique([value for value in values if value is not None], return_counts=True)
        return cls(tuple(str(name) for name in names[np.argsort(-counts, kind="stable")][:most]))

    def codes(self, values: list[str | None]) -> np.ndarray:
        """The place of each value in `names`, their number for others, MISSING for NULL."""
        places = {name: place for place, name in enumerate(self.names)}
        return np.array([MISSING if value is None else places.get(value, len(self.names)) for value in values], np.int64)


def encode_columns(fitted: pa.ChunkedArray, columns: list[pa.ChunkedArray], bins: int, most: int) -> list[np.ndarray]:
    """Each of the `columns` as numbers of bins or categories that are chosen on `fitted`: bins for numbers, times and free texts (their
    length), categories for all else."""
    if is_free_text(fitted) or (not is_text(fitted.type) and not types.is_boolean(fitted.type) and count_distinct(fitted) > bins):
        edges = Bins.fit(as_numbers(fitted), bins)
        return [edges.codes(as_numbers(column)) for column in columns]
    names = Categories.fit(as_texts(fitted), most)
    return [names.codes(as_texts(column)) for column in columns]


def count_codes(codes: np.ndarray, size: int) -> np.ndarray:
    """Rows of each code from MISSING to `size` − 1, shape (size + 1,)."""
    return np.bincount(codes - MISSING, minlength=size - MISSING)

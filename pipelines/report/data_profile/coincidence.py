"""How many rows have the features of a training row by chance: in columns with few values, many do."""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from pipelines.data.features.raw import is_list, is_text
from pipelines.data.versions.data_profile import TEXT_LENGTH

NEARLY_UNIQUE = 0.5
"""Share of a column's values that occur once in the sample, above which its values are taken for unique: equal ones are no chance."""
_WORDS = re.compile(r"[\W_]+")


def share_by_chance(train: pa.Table, other: pa.Table, columns: Iterable[str], train_rows: int) -> float:
    """The share of rows like those of `other` that some of `train_rows` training rows equal in all columns, if columns are independent
    of each other: the mean of 1 − (1 − p)^rows, where p is the product of the frequencies of the row's values.

    `train` and `other` are samples. Long texts, lists and bytes, of which a sample has only a part, are taken for unique.
    """
    chances, sampled_columns = np.ones(len(other)), set(train.column_names)
    for name in columns:
        if not chances.any() or name not in sampled_columns:
            break
        chances *= _frequencies(train[name], other[name])
    return float(-np.expm1(train_rows * np.log1p(-np.minimum(chances, 1 - 1e-12))).mean()) if len(other) else 0.0


def _frequencies(train: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    """How frequent each value of `other` is in the training split."""
    kind = train.type
    if is_list(kind) or types.is_nested(kind):
        return np.zeros(len(other))
    counts = Counter(_normal(value) for value in train.to_pylist())
    values = [_normal(value) for value in other.to_pylist()]
    present_rows = sum(count for value, count in counts.items() if value is not None)
    unique_rows = sum(count == 1 for value, count in counts.items() if value is not None)
    is_unique = unique_rows > NEARLY_UNIQUE * present_rows
    if is_text(kind) and any(value is not None and len(value) >= TEXT_LENGTH for value in train.to_pylist()):
        is_unique = True
    unseen, twins = (0.0, 1) if is_unique else (0.5, 0)  # of unique values, a single one in the sample is the twin itself
    rows = [counts[None] if value is None else max(counts[value] - twins, unseen) if value in counts else unseen for value in values]
    return np.array(rows, float) / max(len(train), 1)


def _normal(value: object) -> object:
    """As `etl.alike` compares values."""
    if isinstance(value, str):
        return _WORDS.sub(" ", value.lower()).strip()
    if isinstance(value, float):
        return None if value != value else float(np.float32(value)) + 0.0
    return value

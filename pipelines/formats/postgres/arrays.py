"""Nests the flat values of arrays with several dimensions."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def nest(flat: pa.ListArray, lengths: Sequence[np.ndarray]) -> pa.Array:
    """Lists of lists, from a list of the values of each row in row-major order. `lengths` are those of each dimension by row; a row that is
    NULL stays so."""
    values = flat.flatten()
    counts = [np.ones(len(flat), np.int64)]
    for length in lengths[:-1]:
        counts.append(counts[-1] * np.where(flat.is_valid().to_numpy(zero_copy_only=False), length, 0))
    nested = values
    for count, length in zip(reversed(counts), reversed(lengths), strict=True):
        valid_length = np.where(flat.is_valid().to_numpy(zero_copy_only=False), length, 0)
        nested = pa.ListArray.from_arrays(_offsets(np.repeat(valid_length, count)), nested)
    return pc.if_else(flat.is_valid(), nested, pa.scalar(None, nested.type)) if flat.null_count else nested


def _offsets(lengths: np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())

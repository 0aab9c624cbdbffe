"""Sets of keys, of one column or several, that equality deletes name."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class KeySet:
    """Keys with the newest sequence number at which each is deleted. NULL equals NULL, NaN equals NaN, and 0.0 is not -0.0, as in Iceberg's
    own implementation."""

    def __init__(self, columns: Sequence[pa.ChunkedArray], sequences: np.ndarray) -> None:
        """`columns` are those of the key, `sequences` the number of each row."""
        self._values: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        codes = np.zeros(len(sequences), np.int64)
        for column in columns:
            comparable = _comparable(column)
            self._values.append(pc.unique(comparable))
            pairs = codes * len(self._values[-1]) + _places(comparable, self._values[-1])
            self._pairs.append(pc.unique(pa.array(pairs)))
            codes = _places(pa.array(pairs), self._pairs[-1])
        self._newest = np.zeros(codes.max(initial=-1) + 1, np.int64)
        np.maximum.at(self._newest, codes, sequences)

    def deletes(self, columns: Sequence[pa.ChunkedArray], sequence: int) -> np.ndarray:
        """Whether each row of a data file of this sequence number is deleted, by its key's columns: by a strictly newer delete."""
        codes = np.zeros(len(columns[0]), np.int64)
        for column, values, pairs in zip(columns, self._values, self._pairs, strict=True):
            places = _places(_comparable(column), values)
            is_known = (codes >= 0) & (places >= 0)
            codes = _places(pa.array(np.where(is_known, codes * len(values) + places, -1)), pairs)
        deleted = codes >= 0
        deleted[deleted] = self._newest[codes[deleted]] > sequence
        return deleted


def _places(column: pa.ChunkedArray | pa.Array, values: pa.Array) -> np.ndarray:
    """Where each value of a column stands in `values`, which may have NULL; -1 for one that does not."""
    return pc.index_in(column, value_set=values).fill_null(-1).to_numpy().astype(np.int64)


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as the integers of their bits, with one NaN."""
    if not pa.types.is_floating(column.type):
        return column
    nan = pa.scalar(float("nan"), column.type)
    bits = pa.int32() if column.type.bit_width == 32 else pa.int64()
    chunks = [pc.if_else(pc.is_nan(chunk), nan, chunk).view(bits) for chunk in column.chunks]
    return pa.chunked_array(chunks, bits)

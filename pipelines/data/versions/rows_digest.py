"""The digest of the set of a split's rows, whatever their order, their parts, and the increments in which they came.

It is the sum, modulo 2**256, of a SHA-256 of each encoded row, so that digests of parts add up, and rows that leave are subtracted. A sum
counts equal rows as often as they occur, where an exclusive or would lose each pair of them. What it must detect is chance: a row that
is lost, repeated or altered changes it, but for one case in 2**256. Rows that somebody chooses could be chosen to give a wanted sum
(Wagner, "A generalized birthday problem", 2002); hashes that resist this cost twenty times as much. The digest of the order, a chain of
SHA-256 over the same rows, is what resists, and stands beside this one in the sealed manifest.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import numpy as np

from pipelines.data.versions.schema import TensorColumn

BLOCK_BYTES = 8 * 2**20
"""Bytes of rows that are copied at once."""
MODULUS = 2**256


def sum_row_hashes(columns: Sequence[TensorColumn], values: Mapping[str, np.ndarray]) -> int:
    """The sum of the hashes of rows, modulo 2**256. `values` have shape (rows, *column.shape), by column."""
    prefix = np.frombuffer(_columns_hash(columns), np.uint8)
    arrays = [_bytes_of_rows(values[column.name], column) for column in columns]
    rows, row_bytes = len(arrays[0]), len(prefix) + sum(array.shape[1] for array in arrays)
    block_rows, total = max(BLOCK_BYTES // row_bytes, 1), 0
    for start in range(0, rows, block_rows):
        pieces = [array[start : start + block_rows] for array in arrays]
        block = np.concatenate([np.broadcast_to(prefix, (len(pieces[0]), len(prefix))), *pieces], axis=1)
        total += _sum_hashes(block[row].data for row in range(len(block)))
    return total % MODULUS


def sum_document_hashes(documents: Iterable[np.ndarray]) -> int:
    """The sum of the hashes of documents of tokens, shapes (tokens,), before they are packed into windows."""
    return _sum_hashes(np.ascontiguousarray(document).view(np.uint8).data for document in documents) % MODULUS


def rows_digest(total: int) -> str:
    """A sum of hashes as hex. Sums of several parts may be added before."""
    return f"{total % MODULUS:064x}"


def rows_sum(digest: str) -> int:
    """The sum that a digest was made of, to add rows to it, or to subtract some."""
    return int(digest, 16)


def _columns_hash(columns: Sequence[TensorColumn]) -> bytes:
    """Of the columns' names and types, which stand before each row: equal bytes in other columns are another row."""
    return sha256("\n".join(f"{column.name} {column.dtype} {column.shape}" for column in columns).encode()).digest()


def _bytes_of_rows(values: np.ndarray, column: TensorColumn) -> np.ndarray:
    little_endian = np.ascontiguousarray(values, np.dtype(column.dtype).newbyteorder("<"))
    return little_endian.reshape(-1).view(np.uint8).reshape(len(values), column.row_bytes)


def _sum_hashes(rows: Iterable[memoryview]) -> int:
    digests = np.frombuffer(b"".join([sha256(row).digest() for row in rows]), "<u4").reshape(-1, 8)
    sums = digests.sum(0, dtype=np.uint64).tolist()  # of 32 bits each, so that 2**32 rows do not overflow
    return sum(value << 32 * place for place, value in enumerate(sums))

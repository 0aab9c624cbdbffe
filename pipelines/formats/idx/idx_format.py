"""IDX, the format of MNIST's files: two zero bytes, a type, a number of dimensions, their sizes, the values.

All numbers are big-endian; the first dimension counts rows. http://yann.lecun.com/exdb/mnist describes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import pyarrow as pa

from pipelines.data.sources.files.content import content
from pipelines.errors import SourceError

_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@dataclass(frozen=True)
class Header:
    dtype: np.dtype
    shape: tuple[int, ...]
    """Rows first."""

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape[1:])


def read_header(path: str) -> Header:
    """Raises SourceError if the file has no IDX header."""
    with content(path) as stream:
        return _header(stream, path)


def read_rows(path: str, rows_per_batch: int) -> Iterator[pa.Array]:
    """A file's rows: numbers if it has one dimension, else the bytes of each row's values.

    Raises SourceError if the file ends before its last row, or continues after it.
    """
    with content(path) as stream:
        header = _header(stream, path)
        for first in range(0, header.shape[0], rows_per_batch):
            rows = min(rows_per_batch, header.shape[0] - first)
            values = _exactly(stream, rows * header.row_bytes)
            if len(values) < rows * header.row_bytes:
                have = first + len(values) // max(header.row_bytes, 1)
                raise SourceError(
                    f"{path} is truncated: its header promises {header.shape[0]:,} rows, {have:,} are there; get the file again"
                )
            if len(header.shape) == 1:
                yield pa.array(np.frombuffer(values, header.dtype).astype(header.dtype.newbyteorder("=")))
            else:
                offsets = np.arange(rows + 1, dtype=np.int32) * header.row_bytes
                yield pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
        if stream.read(1):
            raise SourceError(f"{path} goes on after the {header.shape[0]:,} rows that its header promises; get the file again")


def _header(stream: pa.NativeFile, path: str) -> Header:
    start = _exactly(stream, 4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _DTYPES or not start[3]:
        raise SourceError(
            f"{path} is not an IDX file: it begins with {start.hex(' ') or 'nothing'}; IDX begins with 00 00, a type 08 to 0e, dimensions"
        )
    sizes = _exactly(stream, 4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise SourceError(f"{path} is truncated: {start[3]} dimensions are promised, and the file ends before their sizes; get it again")
    return Header(np.dtype(_DTYPES[start[2]]), tuple(np.frombuffer(sizes, ">u4").tolist()))


def _exactly(stream: pa.NativeFile, size: int) -> bytes:
    """`size` bytes, or fewer at the end: a decompressing stream may return them in several reads."""
    pieces = []
    while size > 0 and (piece := stream.read(size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)

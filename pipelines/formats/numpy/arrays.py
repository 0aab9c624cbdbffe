"""Files of NumPy, without pickles: a file that has one is refused, since reading it would run its code."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa

from pipelines.data.sources.cell_files import local_file
from pipelines.data.sources.numpy_columns import array_kinds, batches_of_arrays
from pipelines.errors import SourceError

VALUE = "value"
"""The column of an array without fields."""


@dataclass(frozen=True)
class ArrayReader:
    """Reads the arrays of a file."""

    def schema(self, path: str) -> pa.Schema:
        with local_file(path) as local, _open_arrays(path, local) as arrays:
            return array_kinds(path, arrays)

    def batches(self, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with local_file(path) as local, _open_arrays(path, local) as arrays:
            yield from batches_of_arrays(path, arrays, names)


@contextmanager
def _open_arrays(path: str, local: str) -> Iterator[Mapping[str, Any]]:
    """The arrays by the names of their columns. Raises SourceError for a file that has a pickle, is cut, or is no file of NumPy."""
    try:
        # Mapped, since a file may be larger than the memory; a .npz file is read array by array.
        loaded = np.load(local, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            with loaded:
                arrays = {name: loaded[name] for name in loaded.files}
            if other := next((name for name, array in arrays.items() if not isinstance(array, np.ndarray)), None):
                raise ValueError(f"{other} is no array")
            yield arrays
        elif loaded.dtype.names:
            yield {name: loaded[name] for name in loaded.dtype.names}
        else:
            yield {VALUE: loaded}
    except (ValueError, EOFError, OSError, BadZipFile, zlib.error, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        remedy = "it is cut, damaged or of another format: get it again"
        if "pickle" in reason or "bject" in reason:  # also of what cannot be mapped
            remedy = "a pickle runs code when it is read, so none is; save arrays of numbers, texts or dates, as np.savez does"
        raise SourceError(f"{path} cannot be read as a file of NumPy ({reason}); {remedy}") from error

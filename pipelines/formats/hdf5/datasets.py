"""Files of HDF5, read with h5py: the datasets of a group are columns, and so are the fields of one dataset."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.sources.cell_files import local_file
from pipelines.data.sources.numpy_columns import array_kinds, batches_of_arrays
from pipelines.errors import ConfigError, SourceError

_VALUE = "value"


@dataclass(frozen=True)
class DatasetReader:
    """Reads the datasets of a group."""

    group: str

    def schema(self, path: str) -> pa.Schema:
        with local_file(path) as local, _open_columns(path, local, self.group) as columns:
            return array_kinds(path, columns)

    def batches(self, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with local_file(path) as local, _open_columns(path, local, self.group) as columns:
            yield from batches_of_arrays(path, columns, names)


@dataclass(frozen=True)
class _Column:
    """A dataset, or a field of one, as a part of NumPy's array has it. Texts of any length are those of NumPy."""

    dataset: Any
    field: str = ""

    @property
    def dtype(self) -> np.dtype:
        return np.dtype("U1") if self._holds_texts else self._own_dtype

    @property
    def _own_dtype(self) -> np.dtype:
        dtype: np.dtype = self.dataset.dtype[self.field] if self.field else self.dataset.dtype
        return dtype

    @property
    def _holds_texts(self) -> bool:
        # Only who reads HDF5 has it installed.
        import h5py  # type: ignore[import-untyped]  # noqa: PLC0415

        return h5py.check_string_dtype(self._own_dtype) is not None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.shape or ())

    def __getitem__(self, rows: slice) -> np.ndarray:
        values = self.dataset[rows]
        values = values[self.field] if self.field else values
        if not self._holds_texts:
            return np.asarray(values)
        texts = [value.decode() if isinstance(value, bytes) else str(value) for value in values.ravel()]
        return np.array(texts, dtype=np.str_).reshape(values.shape)


def check_h5py(place: str) -> None:
    """Raises ConfigError, about what is at `place` of the config or the file system, unless h5py is installed."""
    if find_spec("h5py") is None:
        raise ConfigError(f"{place}: HDF5 needs h5py, which is not installed; pip install 'lockstep-pipelines[hdf5]'")


def table_groups(path: str) -> dict[str, int]:
    """The groups that have datasets, by their number of rows. Raises SourceError as a reader does."""
    import h5py  # noqa: PLC0415

    with local_file(path) as local, _open_file(path, local) as file:
        groups: dict[str, int] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset) and item.shape:
                group = name.rpartition("/")[0]
                groups[group] = max(groups.get(group, 0), item.shape[0])

        file.visititems(visit)
        return groups


@contextmanager
def _open_columns(path: str, local: str, group: str) -> Iterator[Mapping[str, _Column]]:
    """The columns by name. Raises SourceError for a group that is not there, or has no dataset."""
    import h5py  # noqa: PLC0415

    with _open_file(path, local) as file:
        place = file.get(group or "/")
        if place is None:
            names: list[str] = []
            file.visit(names.append)
            raise SourceError(f"{path} has no group {group}; {suggestion(group, names, f'it has {name_list(names)}')}")
        if isinstance(place, h5py.Dataset):
            fields = place.dtype.names
            yield {name: _Column(place, name) for name in fields} if fields else {_VALUE: _Column(place)}
            return
        columns = {name: _Column(item) for name, item in place.items() if isinstance(item, h5py.Dataset)}
        if not columns:
            groups = [name or "/" for name in place if isinstance(place[name], h5py.Group)]
            hint = f"set group to one of {name_list(groups)}" if groups else "give a file that has some"
            raise SourceError(f"{path}: {group or 'its root'} has no datasets; {hint}")
        yield columns


@contextmanager
def _open_file(path: str, local: str) -> Iterator[Any]:
    import h5py  # noqa: PLC0415

    try:
        with h5py.File(local, "r") as file:
            yield file
    except (OSError, UnicodeDecodeError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise SourceError(
            f"{path} cannot be read as HDF5 ({reason}); it is cut, open for writing, or of another format: get it again"
        ) from error

"""Which rows are whose, and who takes part in a round: functions of the dataset's column of clients, the config and the seed."""

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.data.loader.permutations import CLIENTS, permutation, words
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.schema import TensorColumn, to_numpy
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError, DatasetError
from pipelines.strategies.federated.settings import Settings

_NATS = 35.0
"""More clients than there are places are drawn in a round with a probability of at most exp(-35), 6e-16."""


@dataclass(frozen=True)
class ClientRows:
    """The rows of every client, by the client's place among the sorted values."""

    values: np.ndarray
    """The column's distinct values, shape (clients,)."""
    counts: np.ndarray
    """Each client's number of rows, shape (clients,)."""
    grouped: np.ndarray
    """Numbers of all rows within the split, client after client, each client's in ascending order."""

    def row_numbers(self, client: int) -> np.ndarray:
        end = int(self.counts[: client + 1].sum())
        return self.grouped[end - int(self.counts[client]) : end]


def group_by_client(column: np.ndarray) -> ClientRows:
    """Group a split's rows by client; `column` holds the client of every row, shape (rows,)."""
    values, counts = np.unique(column, return_counts=True)
    return ClientRows(values, counts, np.argsort(column, kind="stable"))


def read_column(version: Version, split: str, column: TensorColumn) -> np.ndarray:
    """Read one column of the split's rows, shape (rows,), and no other column.

    Raises CorruptError if a file is gone or has other rows than the manifest says.
    """
    files: dict[str, list[RowGroup]] = {}
    for group in version.split_row_groups(split):
        files.setdefault(group.file, []).append(group)
    return np.concatenate([_read_file(version, file, groups, column) for file, groups in files.items()])


def _read_file(version: Version, file: str, groups: list[RowGroup], column: TensorColumn) -> np.ndarray:
    path = f"{version.root}/{file}"
    try:
        with version.filesystem.open_input_file(path) as source, pq.ParquetFile(source) as parquet:
            table = parquet.read_row_groups([group.index for group in groups], columns=[column.name], use_threads=False)
        values = np.concatenate([to_numpy(column, chunk) for chunk in table.column(column.name).chunks])
    except (OSError, KeyError, pa.ArrowException, DatasetError) as error:
        storage.ask(version.filesystem, path)
        raise CorruptError(f"{path}: {error}; {RESTORE}") from error
    if len(values) != (rows := sum(group.rows for group in groups)):
        raise CorruptError(f"{path} has {len(values)} rows; the manifest says {rows}; {RESTORE}")
    return values


def places(settings: Settings, clients: int) -> int:
    """The number of terms in a round's sum, some of which may be empty."""
    expected = settings.per_round
    if not settings.noise:
        return expected
    # Bernstein's bound on a sum of independent draws, solved for its excess over the mean.
    excess = (2 * _NATS / 3 + sqrt((2 * _NATS / 3) ** 2 + 8 * _NATS * expected)) / 2
    return min(clients, expected + ceil(excess))


def draw_clients(settings: Settings, clients: int, seed: int, number: int) -> np.ndarray:
    """Draw the clients that take part in round `number`: `per_round` of them; or, with noise, each client independently
    with the same probability, as the accountant assumes."""
    if not settings.noise:
        return permutation(clients, seed, CLIENTS, number)[: settings.per_round]
    uniform = (words(clients, seed, CLIENTS, number) >> np.uint64(11)) * 2.0**-53
    return np.flatnonzero(uniform < settings.per_round / clients)[: places(settings, clients)]


def assign_places(settings: Settings, clients: int, seed: int, number: int) -> dict[int, int]:
    """Give each client of round `number` a place in its sum. Clients are evenly spread, so that workers with equal parts of the places
    have equal numbers of clients."""
    participants = draw_clients(settings, clients, seed, number).tolist()
    return {at * places(settings, clients) // len(participants): client for at, client in enumerate(participants)}

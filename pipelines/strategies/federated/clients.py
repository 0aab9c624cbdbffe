"""Which rows are whose, and who takes part in a round: functions of the dataset's column of clients, the config and the seed.

The driver checks that a dataset has the clients that the config asks for.
"""

from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np

from pipelines.config.train.train import Train
from pipelines.data.loader.permutations import CLIENTS, permutation, words
from pipelines.data.versions.columns import read_column
from pipelines.data.versions.schema import FREE
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.strategies.federated.privacy import check_accountant
from pipelines.strategies.federated.settings import Settings
from pipelines.tasks.base import Task
from pipelines.train.initial_model import meta_model
from pipelines.train.single_rows import has_batch_norm

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


def check_federated(settings: Train, version: Version, task: Task) -> None:
    """Read the column of clients, and check that a round can be computed.

    Raises ConfigError if `client_column` names no column of clients, if a row has no client, or if a round has more clients than there
    are. It also refuses a batch norm of a single row, and noise that would not cover all that a client changes.
    """
    clients = settings.strategy_as(Settings)
    encoders = {name: str(fitted.feature.get("encoder")) for name, fitted in version.manifest.encoders.items()}
    clients.check_columns(encoders, version.root)
    client_rows = _read_clients(clients, version)
    count = len(client_rows.values)
    if clients.per_round > count:
        raise ConfigError(
            f"train.strategy.per_round is {clients.per_round}, but {clients.client_column} has only {count} clients; lower it"
        )
    if clients.noise and clients.delta * count >= 1:
        raise ConfigError(f"train.strategy.delta is {clients.delta:g}; it must be less than 1 / {count}, the number of clients; lower it")
    if (too_small := int((_smallest_pass(settings, client_rows.counts) == 1).sum())) and has_batch_norm(settings, task):
        raise ConfigError(
            f"the model has a batch norm, but {too_small} of {count} clients of {clients.client_column} have a batch, or a part of "
            "one, with a single row, which has no variance; leave these clients out in source.query, "
            f"{_larger_passes(settings, client_rows.counts)}or take a network without one, as by task.batch_norm false"
        )
    check_accountant(clients)
    if clients.noise and (buffers := [name for name, _ in meta_model(task).named_buffers()]):
        raise ConfigError(
            f"train.strategy.noise is {clients.noise:g}, but the model has buffers, such as {buffers[0]}, to which no noise is added; "
            "take a model without batch norm or other buffers"
        )


def _read_clients(clients: Settings, version: Version) -> ClientRows:
    """Read the clients of the split `train`. Raises ConfigError for a column that has no clients, or no client for some row."""
    column = next(column for column in version.columns if column.name == clients.client_column)
    if column.shape or "int" not in column.dtype:
        raise ConfigError(
            f"train.strategy.client_column is {clients.client_column}, which has {column.dtype} of shape {column.shape} per row; it must "
            "be one whole number: encode it with label or vocabulary"
        )
    if not version.rows("train"):
        raise ConfigError(
            f"{version.root} has no rows in split train, and so no clients; give it a share in dataset.split and run jobs/etl.py again"
        )
    client_rows = group_by_client(read_column(version, "train", column))
    if version.manifest.encoders[clients.client_column].feature.get("encoder") == "vocabulary" and FREE in client_rows.values:
        raise ConfigError(
            f"{client_rows.counts[0]} training rows have no client: {clients.client_column} is NULL or rare there; leave them out by "
            "source.expect, or encode it with label"
        )
    return client_rows


def _larger_passes(settings: Train, rows: np.ndarray) -> str:
    """Name the settings each of which would give every pass more than a row."""
    changes = {
        "raise train.global_batch": {"global_batch": settings.strategy_as(Settings).per_round * int(rows.max())},
        "lower train.grad_accum_steps": {"grad_accum_steps": 1},
    }
    return "".join(f"{text}, " for text, change in changes.items() if (_smallest_pass(settings.model_copy(update=change), rows) > 1).all())


def _smallest_pass(settings: Train, rows: np.ndarray) -> np.ndarray:
    """The fewest rows that a pass has, for clients with so many rows: shape (clients,). A client's batches are as equal as possible, and
    so are the passes that a batch is divided into."""
    batch = rows // -(-rows // (settings.global_batch // settings.strategy_as(Settings).per_round))
    return batch // np.minimum(settings.grad_accum_steps, batch)

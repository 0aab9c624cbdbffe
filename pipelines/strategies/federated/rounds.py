"""Which rows are whose, who takes part in a round, the loader whose steps are rounds, and the clients' differential privacy.

Clients of a round are a function of the dataset's column of clients, the config and the seed; the driver checks that a dataset has the
clients that the config asks for. A step's input is the clients that this worker plays, each with its rows. Every worker knows the client of
each row, from one column. In a round it reads the row groups that have rows of its clients, once, and keeps only these rows until the next
round.

Noise on the sum of changes is that of DP-FedAvg: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018.
The accountant is that of Opacus, for Renyi differential privacy of the Gaussian mechanism on a Poisson sample (Mironov et al. 2019).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from math import ceil, sqrt
from socket import gethostname
from typing import Any

import numpy as np
import torch

from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order, shard_range
from pipelines.data.loader.order import CLIENT_ROWS, CLIENTS, NOISE, permutation, row_keys, words
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.schema import FREE, ROW_KEYS, ROW_NUMBERS
from pipelines.data.versions.versions import Version, read_column
from pipelines.errors import ConfigError, CorruptError
from pipelines.strategies.federated.settings import Settings
from pipelines.tasks.base import Batch, Task
from pipelines.train.initial_model import has_batch_norm, meta_model
from pipelines.train.workers import WorkerContext

_NATS = 35.0
"""More clients than there are places are drawn in a round with a probability of at most exp(-35), 6e-16."""
Rows = dict[str, np.ndarray]


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
    return {index * places(settings, clients) // len(participants): client for index, client in enumerate(participants)}


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


@dataclass(frozen=True)
class Turn:
    """A client in a round."""

    client: int
    batches: Callable[[], Iterator[Batch]]
    """Its batches of the round, all local epochs one after the other."""
    factor: float
    """Multiplies the client's change, so that the mean over all places, of which some may be empty, is the mean over clients."""


@dataclass(frozen=True)
class Round:
    """A worker's part of a round."""

    places: int
    """Number of places over all workers."""
    clients: int
    """Number of all clients, of which a few take part."""
    turns: dict[int, Turn]
    """By place: the clients that this worker plays."""


class Rounds(Loader):
    """A loader whose steps are rounds. It keeps nothing from one round to the next."""

    def __init__(self, version: Version, order: Order, clients: Settings, context: WorkerContext, *, draws: bool) -> None:
        """`draws` adds ROW_KEYS to the batches."""
        super().__init__(version, "train", order, cache_bytes=0, device=context.device)
        self.steps_per_epoch, self.remainder_rows = clients.rounds_per_epoch, 0
        self._clients, self._context, self._draws = clients, context, draws
        (self._column,) = (column for column in version.columns if column.name == clients.client_column)
        self._hidden_columns = {ROW_NUMBERS, *(column.name for column in version.columns if column.role == "carried")}
        self._client_rows = group_by_client(read_column(version, "train", self._column))
        self._first_row = np.cumsum(self._reader.group_rows) - self._reader.group_rows
        self._places = places(clients, len(self._client_rows.values))

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch: a Round for each. Leaving early keeps the position."""
        if self._step >= self.steps_per_epoch:
            self._epoch, self._step = self._epoch + 1, 0
        while self._step < self.steps_per_epoch:
            began = time.perf_counter()
            clients_of_round = self._round(self._epoch * self.steps_per_epoch + self._step)
            self.wait_seconds += time.perf_counter() - began
            self._step += 1
            yield clients_of_round
        self._epoch, self._step = self._epoch + 1, 0

    def read_ahead(self) -> None:
        """Nothing: a round's rows are read when it begins."""

    def _round(self, number: int) -> Round:
        client_by_place = assign_places(self._clients, len(self._client_rows.values), self.order.seed, number)
        owned_places = shard_range(self._context.rank, self._context.world_size, self._places)
        played = {place: client for place, client in client_by_place.items() if place in owned_places}
        rows_by_client = self._read(list(played.values()))
        total = sum(int(self._client_rows.counts[client]) for client in client_by_place.values())
        turns = {}
        for (place, client), rows in zip(played.items(), rows_by_client, strict=True):
            share = self._places * int(self._client_rows.counts[client]) / total
            factor = share if self._clients.weighting == "rows" else self._places / self._clients.per_round
            turns[place] = Turn(client, partial(self._visit, number, client, rows), factor)
        return Round(self._places, len(self._client_rows.values), turns)

    def _read(self, clients: list[int]) -> list[Rows]:
        """Each client's rows in stored order, with their numbers."""
        if not clients:
            return []
        numbers_by_client = [self._client_rows.row_numbers(client) for client in clients]
        numbers = np.concatenate(numbers_by_client)
        in_group = np.searchsorted(self._first_row, numbers, side="right") - 1
        rows = {column.name: np.empty((len(numbers), *column.shape), column.dtype) for column in self._reader.columns}
        by_group = np.argsort(in_group, kind="stable")
        for selected in np.split(by_group, np.flatnonzero(np.diff(in_group[by_group])) + 1):
            group = int(in_group[selected[0]])
            for name, values in self._reader.read(group).items():
                rows[name][selected] = values[numbers[selected] - self._first_row[group]]
        if (rows[self._column.name] != np.repeat(self._client_rows.values[clients], [len(part) for part in numbers_by_client])).any():
            raise CorruptError(f"column {self._column.name} has other values than when it was read first; {RESTORE}")
        rows[ROW_NUMBERS] = numbers
        ends = np.cumsum([len(part) for part in numbers_by_client])[:-1]
        return [dict(zip(rows, parts, strict=True)) for parts in zip(*(np.split(values, ends) for values in rows.values()), strict=True)]

    def _visit(self, number: int, client: int, rows: Rows) -> Iterator[Batch]:
        """A client's batches in round `number`, in another order for every local epoch. They are as equal as possible: a last batch
        with the remainder could have a single row, whose gradient would count as much as a full batch, and which has no batch norm."""
        count, largest_batch = len(rows[ROW_NUMBERS]), self.order.global_batch // self._clients.per_round
        for epoch in range(self._clients.local_epochs):
            visit_order = np.arange(count)
            if self.order.shuffle:
                visit_order = permutation(count, self.order.seed, CLIENT_ROWS, number, client, epoch)
            stride, start = row_keys(self.order.seed, number * self._clients.local_epochs + epoch)
            for places_of_batch in np.array_split(visit_order, -(-count // largest_batch)):
                batch = {name: values[places_of_batch] for name, values in rows.items() if name not in self._hidden_columns}
                numbers = rows[ROW_NUMBERS][places_of_batch]
                if self._draws:
                    batch[ROW_KEYS] = numbers * stride + start
                yield {name: torch.from_numpy(values).to(self._context.device, non_blocking=True) for name, values in batch.items()}


def check_accountant(clients: Settings) -> None:
    """Raise ConfigError if the config asks for noise, and this machine has no accountant."""
    if clients.noise and find_spec("opacus") is None:
        raise ConfigError(
            f"train.strategy.noise is {clients.noise:g}, whose accountant is missing on {gethostname()}; pip install "
            "'lockstep-pipelines[privacy]' there"
        )


def epsilon(share: float, multiplier: float, rounds: int, delta: float) -> float:
    """The epsilon of (epsilon, delta)-differential privacy for adding or removing one client, after that number of rounds.

    In each round every client takes part with probability `share`. The noise is `multiplier` times the norm of a client's largest change.
    """
    from opacus.accountants.analysis.rdp import get_privacy_spent

    orders, divergences = _renyi(share, multiplier)
    spent, _ = get_privacy_spent(orders=orders, rdp=rounds * divergences, delta=delta)
    return float(spent)


@cache
def _renyi(share: float, multiplier: float) -> tuple[list[float], np.ndarray]:
    """Orders, and the Renyi divergence of one round at each; rounds add up."""
    from opacus.accountants import RDPAccountant
    from opacus.accountants.analysis.rdp import compute_rdp

    orders = [*RDPAccountant.DEFAULT_ALPHAS, *range(64, 513, 16)]
    return orders, np.asarray(compute_rdp(q=share, noise_multiplier=multiplier, steps=1, orders=orders))


def noise(seed: int, number: int, count: int) -> np.ndarray:
    """Standard normal numbers of round `number`, float64 of shape (count,): by the Box-Muller transform, from random words."""
    pairs = -(-count // 2)
    uniform = (words(2 * pairs, seed, NOISE, number) >> np.uint64(11)) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log1p(-uniform[:pairs])), 2 * np.pi * uniform[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

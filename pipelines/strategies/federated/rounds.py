"""The loader of federated training: a step is a round, and its input are the clients that this worker plays, each with its rows.

Every worker knows which rows are whose, from one column. In a round it reads the row groups that have rows of its clients, once, and
keeps only these rows until the next round.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from pipelines.data.loader import Loader, Order, shard_range
from pipelines.data.loader.permutations import CLIENT_ROWS, permutation, row_keys
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.schema import ROW_KEYS, ROW_NUMBERS
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError
from pipelines.strategies.federated.clients import assign_places, places, read_column, rows_of_clients
from pipelines.strategies.federated.settings import Settings
from pipelines.tasks.base import Batch
from pipelines.train.reduce.context import WorkerContext

Rows = dict[str, np.ndarray]


class Batches(Protocol):
    def __call__(self) -> Iterator[Batch]:
        """A client's batches of a round, all local epochs one after the other."""


@dataclass(frozen=True)
class Turn:
    """A client in a round."""

    client: int
    batches: Batches
    factor: float
    """What the client's change is multiplied by, so that the mean over all places, of which some may be empty, is that over clients."""


@dataclass(frozen=True)
class Round:
    """What a worker plays of a round."""

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
        self._unseen = {ROW_NUMBERS, *(column.name for column in version.columns if column.role == "carried")}
        self._owned = rows_of_clients(read_column(version, "train", self._column))
        self._first_row = np.cumsum(self._reader.group_rows) - self._reader.group_rows
        self._places = places(clients, len(self._owned.values))

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch: a Round for each. Leaving early keeps the position."""
        if self._step >= self.steps_per_epoch:
            self._epoch, self._step = self._epoch + 1, 0
        while self._step < self.steps_per_epoch:
            began = time.perf_counter()
            played = self._round(self._epoch * self.steps_per_epoch + self._step)
            self.wait_seconds += time.perf_counter() - began
            self._step += 1
            yield played
        self._epoch, self._step = self._epoch + 1, 0

    def read_ahead(self) -> None:
        """Nothing: a round's rows are read when it begins."""

    def _round(self, number: int) -> Round:
        every = assign_places(self._clients, len(self._owned.values), self.order.seed, number)
        owned = shard_range(self._context.rank, self._context.world_size, self._places)
        mine = {place: client for place, client in every.items() if place in owned}
        rows = self._read(list(mine.values()))
        total = sum(int(self._owned.counts[client]) for client in every.values())
        turns = {}
        for (place, client), of_client in zip(mine.items(), rows, strict=True):
            share = self._places * int(self._owned.counts[client]) / total
            factor = share if self._clients.weighting == "rows" else self._places / self._clients.per_round
            turns[place] = Turn(client, partial(self._visit, number, client, of_client), factor)
        return Round(self._places, len(self._owned.values), turns)

    def _read(self, clients: list[int]) -> list[Rows]:
        """Each client's rows in stored order, with their numbers."""
        if not clients:
            return []
        every = [self._owned.of(client) for client in clients]
        numbers = np.concatenate(every)
        in_group = np.searchsorted(self._first_row, numbers, side="right") - 1
        found = {column.name: np.empty((len(numbers), *column.shape), column.dtype) for column in self._reader.columns}
        by_group = np.argsort(in_group, kind="stable")
        for at in np.split(by_group, np.flatnonzero(np.diff(in_group[by_group])) + 1):
            group = int(in_group[at[0]])
            for name, values in self._reader.read(group).items():
                found[name][at] = values[numbers[at] - self._first_row[group]]
        if (found[self._column.name] != np.repeat(self._owned.values[clients], [len(rows) for rows in every])).any():
            raise CorruptError(f"column {self._column.name} has other values than when it was read first; {RESTORE}")
        found[ROW_NUMBERS] = numbers
        ends = np.cumsum([len(rows) for rows in every])[:-1]
        return [dict(zip(found, parts, strict=True)) for parts in zip(*(np.split(values, ends) for values in found.values()), strict=True)]

    def _visit(self, number: int, client: int, rows: Rows) -> Iterator[Batch]:
        """A client's batches in round `number`, in an order of its own for every local epoch. They are as equal as possible: a last batch
        with the remainder could have a single row, whose gradient is as large as that of others, and which has no batch norm."""
        count, most = len(rows[ROW_NUMBERS]), self.order.global_batch // self._clients.per_round
        for epoch in range(self._clients.local_epochs):
            visited = np.arange(count)
            if self.order.shuffle:
                visited = permutation(count, self.order.seed, CLIENT_ROWS, number, client, epoch)
            stride, start = row_keys(self.order.seed, number * self._clients.local_epochs + epoch)
            for batch in np.array_split(visited, -(-count // most)):
                taken = {name: values[batch] for name, values in rows.items() if name not in self._unseen}
                numbers = rows[ROW_NUMBERS][batch]
                if self._draws:
                    taken[ROW_KEYS] = numbers * stride + start
                yield {name: torch.from_numpy(values).to(self._context.device, non_blocking=True) for name, values in taken.items()}

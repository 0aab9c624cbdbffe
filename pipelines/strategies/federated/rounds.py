"""The loader of federated training: a step is a round, and its input is the clients that this worker plays, each with its rows.

Every worker knows the client of each row, from one column. In a round it reads the row groups that have rows of its clients, once, and
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
from pipelines.data.versions.columns import read_column
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.schema import ROW_KEYS, ROW_NUMBERS
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError
from pipelines.strategies.federated.clients import assign_places, group_by_client, places
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
        for at in np.split(by_group, np.flatnonzero(np.diff(in_group[by_group])) + 1):
            group = int(in_group[at[0]])
            for name, values in self._reader.read(group).items():
                rows[name][at] = values[numbers[at] - self._first_row[group]]
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

"""Strategy `boosting`: gradient-boosted trees (Friedman 2001), whose histograms are summed over workers (Ke et al. 2017).

Trees are bitwise the same for any number of workers. Histograms add millions of gradients, in an order that depends on threads and
workers. Here every gradient is a multiple of a power of two that has 23 bits below the largest of all workers. A float64 holds the sum of
2^29 of them without rounding, in any order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from math import frexp
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from pipelines.applications.trees.forest import TREES_AT_ONCE, Forest
from pipelines.applications.trees.lightgbm_network import Growth, MachineGroup, check_lightgbm
from pipelines.applications.trees.settings import BoostingSettings as Settings
from pipelines.applications.trees.task import Trees
from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.versions import Version, include_passthrough
from pipelines.errors import ConfigError
from pipelines.runtime.philox import random_words
from pipelines.tasks.base import Task
from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.supervised import Supervised
from pipelines.train.run_context import RunContext, train_order
from pipelines.train.step_clock import EXCHANGE, OTHER
from pipelines.train.step_statistics import Flags, StepResult
from pipelines.train.strategy import Strategy
from pipelines.train.workers import WorkerContext, waits_for_workers

SAMPLE_ROWS = 200_000
"""Rows from which the intervals of numbers are made, the same on all workers."""
MOST_ROWS = 2**29
"""Of a split: a float64 holds the sum of so many gradients without rounding."""
_GRID_BITS = 23
"""Of a gradient, below the largest of all workers."""
_LEAST_CURVATURE = 1e-6
"""Least curvature, as a share of the row's weight, for losses that are flat or concave somewhere."""
_BIAS_STEPS, _HALVINGS = 50, 20
"""Of Newton's method for the best constant output: the most steps, and the most halvings of one."""


def add_missing_row(sample: np.ndarray, is_missing: Sequence[bool]) -> np.ndarray:
    """The sample, and one row more if some inputs may be missing, in which they are: LightGBM learns a side for NaN only of inputs of which
    its sample has one, and takes NaN for 0 elsewhere."""
    return np.concatenate([sample, np.where(is_missing, np.float32(np.nan), sample[:1])]) if any(is_missing) else sample


class TreeRounds(Loader):
    """A loader whose steps are rounds: it reads all rows once, and then only counts."""

    def __init__(self, version: Version, order: Order, owned_shards: range, rounds_per_epoch: int, threads: int) -> None:
        order = replace(order, shuffle=False, remainder="keep")
        super().__init__(version, "train", order, owned_shards, cache_bytes=0)
        self.steps_per_epoch, self.remainder_rows = rounds_per_epoch, 0
        self._version, self._threads = version, threads

    def __iter__(self) -> Iterator[Any]:
        """The numbers of the remaining rounds of the epoch. Leaving early keeps the position."""
        if self._step >= self.steps_per_epoch:
            self._epoch, self._step = self._epoch + 1, 0
        while self._step < self.steps_per_epoch:
            self._step += 1
            yield self._epoch * self.steps_per_epoch + self._step - 1
        self._epoch, self._step = self._epoch + 1, 0

    def read_ahead(self) -> None:
        """Nothing: the rows are in memory."""

    def read_rows(self) -> Iterator[Batch]:
        """All rows of the owned shards, on the CPU, a batch at a time: a text takes many times the memory of what trees see of it. Batches
        share memory."""
        with closing(Loader(self._version, "train", self.order, self.owned_shards, cache_bytes=0, threads=self._threads)) as loader:
            yield from loader

    def read_sample(self) -> Iterator[Batch]:
        """The first rows of the training split, at most SAMPLE_ROWS, or few more, a row group at a time; ETL has shuffled them."""
        reader, rows = Reader(self._version, "train"), 0
        for number in range(len(reader.groups)):
            yield {name: torch.from_numpy(values.copy()) for name, values in reader.read(number).items()}
            rows += int(reader.group_rows[number])
            if rows >= SAMPLE_ROWS:
                break


class PredictionCache:
    """Sums of a forest's first trees, by the batch. Outputs have the bits of the forest's own."""

    def __init__(self, forest: Forest, most_bytes: int) -> None:
        """`most_bytes` limits the sums. Of rows beyond that, all trees are computed each time."""
        self._forest, self._most_bytes, self._bytes = forest, most_bytes, 0
        self._sums: dict[bytes, tuple[int, Tensor]] = {}
        """By the batch's digest: the number of trees, which ends a group that the forest adds at once, and their sum."""

    def outputs(self, inputs: Tensor) -> Tensor:
        """float32 of shape (rows, outputs), from float32 of shape (rows, inputs)."""
        forest, digest = self._forest, blake2b(inputs.contiguous().numpy().data).digest()
        trees, total = self._sums.get(digest, (0, forest.bias.repeat(len(inputs), 1)))
        full_groups = forest.count - forest.count % (TREES_AT_ONCE * forest.outputs)
        total = forest.add_trees(total, inputs, range(trees, full_groups))
        if digest in self._sums or self._bytes + total.nbytes <= self._most_bytes:
            self._bytes += 0 if digest in self._sums else total.nbytes
            self._sums[digest] = full_groups, total
        return forest.add_trees(total, inputs, range(full_groups, forest.count)).float()

    def clear(self) -> None:
        """Forget all sums: the forest has other trees."""
        self._sums, self._bytes = {}, 0


class Boosting(Strategy):
    """Every worker keeps its rows, and all hold the whole forest."""

    model: Forest
    _task: Trees

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, as_trees(task), build, context)
        self._boosting = settings.strategy_as(Settings)
        rounds = min(settings.epochs * self._boosting.rounds_per_epoch, settings.max_steps or 2**63)
        self.model.reserve(rounds * self.model.outputs)
        self._machines: MachineGroup | None = None
        self._predictions = PredictionCache(self.model, settings.cache_bytes // 4)
        self._has_begun = False

    @classmethod
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        """Raise ConfigError for another task, without LightGBM, or with too few rows or too many."""
        as_trees(task)
        check_lightgbm()
        rows, least = version.rows("train"), 2 * settings.shards
        if not least <= rows <= MOST_ROWS:
            remedy = f"give more rows, or lower train.shards to at most {rows // 2}" if rows < least else "train on a sample of the rows"
            raise ConfigError(f"the split train of {version.root} has {rows:,} rows; trees need {least:,} to {MOST_ROWS:,}: {remedy}")

    def open_loader(self, config: Config, version: Version, task: Task) -> Loader:
        shards = self.mesh.worker_shards(config.train.shards)
        version = include_passthrough(version, task.settings.passthrough)
        return TreeRounds(version, train_order(config), shards, self._boosting.rounds_per_epoch, config.train.cpus_per_worker)

    def begin(self, run: RunContext) -> None:
        """Read the rows, and compute their outputs by the trees so far. Raises ConfigError if their weights are 0."""
        assert isinstance(run.loader, TreeRounds), "open_loader returns it"
        sample = torch.cat([self.model.inputs(rows) for rows in run.loader.read_sample()]).numpy()
        sample = add_missing_row(sample, [input.is_missing for input in self._task.inputs])
        names = (self._task.data.target.name, *self._task.settings.passthrough)  # the loss needs no features
        parts = [(self.model.inputs(rows), {name: rows[name].clone() for name in names}) for rows in run.loader.read_rows()]
        inputs = torch.cat([inputs for inputs, _ in parts])
        self._rows = {name: torch.cat([rows[name] for _, rows in parts]) for name in names}
        del parts
        rows_here, outputs = row_count(self._rows), self.model.outputs
        _, weights = self._task.row_losses(torch.zeros(rows_here, outputs, dtype=torch.float64), self._rows)
        self._count = sum_exactly(torch.ones(rows_here, dtype=torch.float64))
        self._weight = self._count if weights is None else sum_exactly(*to_grids(weights.clone()))  # in place, and weights stay
        if not self._weight:
            raise ConfigError("the weights of all rows of the split train are 0; change task.class_weights or task.sample_weight")
        if not run.state.step:
            self.model.bias.copy_(best_bias(self._task, self._rows, outputs))
        self._scores = self.model.scores(inputs)
        settings = self._settings
        growth = Growth(self._task.settings, self._task.inputs, outputs, sample, settings.cpus_per_worker, settings.timeout_seconds)
        self._machines = MachineGroup(growth, inputs.numpy(), self.mesh.context)

    def step(self, batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        """One round. The loss is that of the trees before it."""
        assert self._machines is not None, "begin starts them"
        round_of_epoch = number % self._boosting.rounds_per_epoch
        if not (round_of_epoch and self._has_begun):
            # Below 2^31. LightGBM begins anew with it in every epoch, so that a resumed run need not repeat what was drawn before.
            seed = int(random_words(1, self._settings.seed, number // self._boosting.rounds_per_epoch)[0]) >> 33
            self._machines.begin(self._scores.numpy(), seed, round_of_epoch)
            self._has_begun = True
        derivatives = gradients(self._task, self._scores, self._rows)
        self.clock.enter(EXCHANGE)
        gradient, curvature, losses = to_grids(derivatives.gradient, derivatives.curvature, derivatives.losses)
        sums = [losses.sum(0, keepdim=True), torch.tensor(flags.numbers(), dtype=torch.float64), gradient.sum(0)]
        loss_sum, flags_of_all, gradient_sum = sum_exactly(torch.cat(sums)[None]).split([len(values) for values in sums])
        norm = gradient_sum.norm() / self._weight if compute_grad_norm else torch.tensor(-1.0)
        trees = self._machines.grow(gradient.float().numpy(), curvature.float().numpy(), rate)
        self.clock.enter(OTHER)
        self.model.add(trees)
        self._scores = torch.from_numpy(self._machines.scores())
        return StepResult(norm, losses.sum(), loss_sum[0], self._weight, self._count, flags_of_all)

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """The forest's output, computed on the CPU. Of rows that an earlier epoch predicted, only trees since then are computed."""
        if not row_count(batch):
            return torch.empty(0)
        return self._predictions.outputs(self.model.inputs({name: values.cpu() for name, values in batch.items()}))

    def sync_buffers(self) -> None:
        """Nothing: all workers have the same trees."""

    def state_dict(self) -> dict[str, Any]:
        return {"model": dict(self.model.state_dict()), "growth": self.model.facts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self._predictions.clear()
        for name, values in self.model.facts.items():
            values.copy_(state["growth"][name])

    def weights(self) -> dict[str, Tensor]:
        return {} if self.mesh.context.rank else self.model.weights()

    def close(self) -> None:
        if self._machines is not None:
            self._machines.close()
            self._machines = None


def as_trees(task: Task) -> Trees:
    """Raises ConfigError for another task."""
    if not isinstance(task, Trees):
        raise ConfigError(f"train.strategy is boosting, and task.kind {task.settings.kind} has no trees; set task.kind to trees")
    return task


class Gradients(NamedTuple):
    """Loss and derivatives of each row of a worker, weighted."""

    gradient: Tensor
    """float64 of shape (rows, outputs)."""
    curvature: Tensor
    """float64 of shape (rows, outputs): above 0, unless the row's weight is 0."""
    losses: Tensor
    """float64 of shape (rows,)."""


def gradients(task: Supervised, scores: Tensor, batch: Batch) -> Gradients:
    """The derivatives of the loss by each output, the second without its sign. Of a loss without curvature, as of quantiles, it is the
    row's weight."""
    losses, weights = task.row_losses(scores, batch)
    gradient, curvature = task.target.derivatives(scores, batch[task.data.target.name])
    curvature = curvature.abs_().clamp_(min=_LEAST_CURVATURE) if task.target.is_curved else torch.ones_like(curvature)
    if weights is None:
        return Gradients(gradient, curvature, losses)
    return Gradients(gradient * weights[:, None], curvature * weights[:, None], losses * weights)


def to_grids(*arrays: Tensor) -> list[Tensor]:
    """Each array rounded to a grid of its own, as float64; one of float64 in place. Collective: a grid is that of the largest value of all
    workers."""
    largest = torch.zeros(len(arrays), dtype=torch.float64)
    for place, values in enumerate(arrays):
        if values.numel():
            least, most = torch.aminmax(values)
            largest[place] = torch.maximum(-least, most)
    _reduce(largest, dist.ReduceOp.MAX)
    rounded = []
    for values, bound in zip(arrays, largest.tolist(), strict=True):
        # At 1.5 · 2^52 times the grid's spacing, float64 holds no other numbers: so adding it rounds, and subtracting it does not.
        shift = 1.5 * 2.0**52 * 2.0 ** (frexp(bound)[1] - _GRID_BITS)
        rounded.append(values.double().add_(shift).sub_(shift))
    return rounded


def sum_exactly(on_grid: Tensor) -> Tensor:
    """The sum over the rows of all workers, shape (…) from (rows, …): the same bits for any number of workers. Collective."""
    total = on_grid.sum(0)
    _reduce(total, dist.ReduceOp.SUM)
    return total


def best_bias(task: Supervised, batch: Batch, outputs: int) -> Tensor:
    """The constant output with the least loss: float64 of shape (outputs,). Collective.

    Newton's method with the diagonal of the second derivatives; a step that does not lower the loss is halved.
    """
    bias, rows = torch.zeros(outputs, dtype=torch.float64), row_count(batch)
    loss = _loss_of_constant(task, batch, bias)
    for _ in range(_BIAS_STEPS):
        derivatives = gradients(task, bias.repeat(rows, 1), batch)
        gradient, curvature = map(sum_exactly, to_grids(derivatives.gradient, derivatives.curvature))
        step = gradient / curvature
        for _ in range(_HALVINGS):
            lower = _loss_of_constant(task, batch, bias - step)
            if lower < loss:
                break
            step = step / 2
        else:
            return bias
        bias, loss = bias - step, lower
    return bias


def _loss_of_constant(task: Supervised, batch: Batch, bias: Tensor) -> float:
    losses, weights = task.row_losses(bias.repeat(row_count(batch), 1), batch)
    return float(sum_exactly(*to_grids(losses if weights is None else losses * weights)))


@waits_for_workers
def _reduce(values: Tensor, operation: dist.ReduceOp.RedOpType) -> None:
    if dist.is_initialized():
        dist.all_reduce(values, operation)

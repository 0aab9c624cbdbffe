"""Strategy `ensemble_selection`: one step, which chooses an ensemble's members by their outputs for the rows of validation.

Each worker computes the outputs of all members for the rows of its shards, shard by shard. The first worker has them all, in the order of
the shards, and measures averages of them as an evaluation would. So the choice does not depend on the number of workers.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf, isnan
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pipelines.applications.ensembles.network import EnsembleNetwork
from pipelines.applications.ensembles.selection import Score, Uses, select_members
from pipelines.applications.ensembles.settings import SelectionSettings
from pipelines.applications.ensembles.task import Ensemble
from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.versions import Version, include_passthrough
from pipelines.errors import ConfigError
from pipelines.tasks.base import Monitor, Task, sum_losses
from pipelines.tasks.data import Batch, row_count
from pipelines.tasks.metrics.table import Value, metric_values, to_number
from pipelines.train.step_clock import EXCHANGE, FORWARD
from pipelines.train.step_statistics import Flags, StepResult
from pipelines.train.strategy import Strategy
from pipelines.train.workers import WorkerContext, all_gather_object, broadcast_from_rank0

SCORE_DIGITS = 6
"""Of metrics that are compared: an area under a curve is one of float32, of which equal ones differ in the eighth digit."""


class MemberOutputs(NamedTuple):
    """Rows of validation, with the outputs of all members for them."""

    outputs: Tensor
    """float32 of shape (rows, members, outputs)."""
    columns: Batch
    """What a loss and metrics need besides: the target, and weights of rows if there are."""


class MemberChoice(NamedTuple):
    uses: Uses
    best_member: float
    """The monitored metric of the best member alone; NaN if it is not defined."""
    loss_sum: Tensor
    weight: Tensor
    rows: int


class EnsembleSelection(Strategy):
    """Every worker holds all members."""

    model: EnsembleNetwork
    _task: Ensemble

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, as_ensemble(task), build, context)
        torch.set_num_threads(settings.strategy_as(SelectionSettings).threads_per_shard)
        self.model.to(context.device)
        self._choice: MemberChoice | None = None

    @classmethod
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        """Raise ConfigError for another task, or without rows to choose by."""
        as_ensemble(task)
        if not version.rows("validation"):
            raise ConfigError(
                f"the split validation of {version.root} has no rows, by which the members of an ensemble are chosen; give dataset.split "
                "a share of validation, and train the members on it"
            )

    def open_loader(self, config: Config, version: Version, task: Task) -> Loader:
        """The rows of validation of this worker's shards: one step takes them all."""
        train = config.train
        return Loader(
            include_passthrough(version, task.settings.passthrough),
            "validation",
            Order(train.shards, train.shards * train.global_batch, shuffle=False, remainder="keep"),
            self.mesh.worker_shards(train.shards),
            device=self.mesh.context.device,
            cache_bytes=0,
            prefetch_bytes=train.prefetch_bytes,
            threads=train.cpus_per_worker,
        )

    def batches(self, loader: Loader) -> Iterator[Any]:
        yield loader

    def step(self, batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool = True) -> StepResult:
        """Choose the members. The loss is that of the chosen average on the rows of validation."""
        self.clock.enter(FORWARD)
        shards = self._predict_shards(batch)
        self.clock.enter(EXCHANGE)
        by_worker = all_gather_object((shards, flags.numbers()))
        shards_in_order = [rows for of_worker, _ in by_worker for rows in of_worker]
        choice = broadcast_from_rank0(self._choose(shards_in_order) if self.mesh.context.rank == 0 else None)
        assert choice is not None, "rank 0 chooses"
        self._choice = choice
        self.model.choose(choice.uses)
        flag_counts = torch.tensor([numbers for _, numbers in by_worker], dtype=torch.float64).sum(0)
        rows, no_gradient = torch.tensor(choice.rows), torch.tensor(-1.0)
        return StepResult(no_gradient, choice.loss_sum, choice.loss_sum, choice.weight, rows, flag_counts)

    @torch.no_grad()
    def _predict_shards(self, loader: Loader) -> list[MemberOutputs]:
        """The rows of each of this worker's shards that has some."""
        self.model.eval()
        names = (self._task.data.target.name, *self._task.settings.passthrough)
        pieces: list[list[MemberOutputs]] = [[] for _ in loader.owned_shards]
        for batch in loader:
            for shard, rows in zip(pieces, loader.split_by_shard(batch), strict=True):
                if row_count(rows):
                    outputs = self.model.member_outputs(rows)
                    shard.append(MemberOutputs(outputs.cpu(), {name: rows[name].cpu().clone() for name in names}))
        return [join_rows(shard) for shard in pieces if shard]

    def _choose(self, shards: list[MemberOutputs]) -> MemberChoice:
        rows, task, monitor = join_rows(shards), self._task, self._task.choose_monitor(self._settings.monitor)
        members = rows.outputs.shape[1]

        def measure(uses: Uses) -> dict[str, Value]:
            return average_metrics(task, rows, uses)

        uses = select_members(members, task.settings.rounds, lambda uses: as_score(measure(uses), monitor, task.minimised))
        alone = [measure(tuple(int(other == member) for other in range(members))) for member in range(members)]
        best = min(alone, key=lambda metrics: as_score(metrics, monitor, task.minimised))
        losses, weights = task.row_losses(average_outputs(task, rows, uses), rows.columns)
        return MemberChoice(uses, to_number(best[monitor[0]]), *sum_losses(losses, weights), row_count(rows.columns))

    def metrics(self) -> dict[str, float]:
        """The share of each member by its number in `task.of`, from 1; and the monitored metric of the best one alone."""
        if self._choice is None:
            return {}
        uses, best = self._choice.uses, self._choice.best_member
        shares = {f"ensemble/share_{number}": count / sum(uses) for number, count in enumerate(uses, 1)}
        return {**shares, **({} if isnan(best) else {"ensemble/best_member": best})}

    def predict(self, batch: Batch) -> Tensor:
        """The output in float32, as that of a served model."""
        if not row_count(batch):
            return torch.empty(0)
        self.model.eval()
        with torch.no_grad():
            return self.model(batch)

    def sync_buffers(self) -> None:
        """Nothing: all workers have the same members."""

    def state_dict(self) -> dict[str, Any]:
        """How often each member counts. Their weights are in the run's directory, from which every attempt starts."""
        return {"model": {"uses": self.model.uses}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.model.choose(state["model"]["uses"].tolist())

    def weights(self) -> dict[str, Tensor]:
        return {} if self.mesh.context.rank else self.model.weights()


def as_ensemble(task: Task) -> Ensemble:
    """Raises ConfigError for another task."""
    if not isinstance(task, Ensemble):
        raise ConfigError(f"train.strategy is ensemble_selection, and task.kind {task.settings.kind} has no members; remove train.strategy")
    return task


def join_rows(pieces: list[MemberOutputs]) -> MemberOutputs:
    names = pieces[0].columns
    return MemberOutputs(
        torch.cat([rows.outputs for rows in pieces]), {name: torch.cat([rows.columns[name] for rows in pieces]) for name in names}
    )


def average_outputs(task: Ensemble, rows: MemberOutputs, uses: Uses) -> Tensor:
    """float64 of shape (rows, outputs)."""
    used = [number for number, count in enumerate(uses) if count]
    shares = torch.tensor([uses[number] / sum(uses) for number in used], dtype=torch.float64)
    return task.target.average(rows.outputs[:, used].double(), shares)


def average_metrics(task: Ensemble, rows: MemberOutputs, uses: Uses) -> dict[str, Value]:
    """The metrics of an average on these rows, which this worker alone computes."""
    metrics = task.metrics()
    for metric in metrics.values(copy_state=False):
        metric.distributed_available_fn = lambda: False
    task.update(metrics, average_outputs(task, rows, uses), rows.columns)
    return metric_values(metrics)


def as_score(metrics: Mapping[str, Value], monitor: Monitor, minimised: str) -> Score:
    """The monitored metric, and then the loss, as epochs are compared: lower is better, and one that is not defined is the worst. Both are
    rounded, so that averages which are as good are equal."""
    values = [(to_number(metrics[name]), direction) for name, direction in (monitor, (minimised, "min"))]
    rounded = [(float(f"{value:.{SCORE_DIGITS}g}"), direction) for value, direction in values]
    return tuple(inf if isnan(value) else -value if direction == "max" else value for value, direction in rounded)

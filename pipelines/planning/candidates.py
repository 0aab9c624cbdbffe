"""Candidates for a training: every layout on every cluster, with hours, cost and memory; the best of each kind, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from pipelines.errors import ConfigError
from pipelines.planning.failures import RESTART_SECONDS, FailureEstimate, estimate_failures
from pipelines.planning.hardware import Cluster
from pipelines.planning.layouts import ParallelLayout, enumerate_layouts, more_passes
from pipelines.planning.measured import MeasuredPasses
from pipelines.planning.memory import estimate_memory, usable_bytes
from pipelines.planning.model_costs import ModelCosts
from pipelines.planning.step_time import StepEstimate, estimate_step

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Kind = Literal["fastest", "cheapest", "cheapest within the deadline", "fastest within the budget"]
CHECKPOINT_BYTES_PER_SECOND = 1e9
"""Of each machine to storage: assumed. A checkpoint has 12 bytes per parameter, with the optimizer's state, and training waits for it."""


@dataclass(frozen=True)
class TrainingJob:
    """A training to plan."""

    model: ModelCosts
    rows: float
    """Rows to train on in all, counting each epoch."""
    global_batch: int
    precision: Precision | Literal["auto"] = "auto"
    shards: int = 0
    """`train.shards`, which workers that read rows share evenly; where these are more, there are as many shards as they are."""
    deadline_hours: float = inf
    budget: float = inf
    compiles: Sequence[bool] = (True, False)
    """Whether the model may be compiled, what is preferred first."""
    pass_rows: int = 0
    """Rows of every pass, of a strategy whose sums do not depend on workers: all of them have full copies. 0 for any number."""
    measured: Mapping[str, MeasuredPasses] = field(default_factory=dict)
    """Passes that were measured on a cluster, by its name."""
    restart_seconds: float = RESTART_SECONDS

    @property
    def steps(self) -> float:
        return self.rows / self.global_batch


@dataclass(frozen=True)
class PlanCandidate:
    """A layout on a cluster. `cost` is in the currency of the prices, and includes what failures cost."""

    cluster: Cluster
    layout: ParallelLayout
    step: StepEstimate
    hours: float
    """Without failures."""
    failures: FailureEstimate
    cost: float

    @property
    def expected_hours(self) -> float:
        return self.failures.expected_seconds / 3600


@dataclass(frozen=True)
class BestPlan:
    """The best candidate of a kind, and why, in a sentence."""

    kind: Kind
    candidate: PlanCandidate
    reason: str


def evaluate(job: TrainingJob, cluster: Cluster, layout: ParallelLayout) -> PlanCandidate:
    """The candidate of a layout on a cluster."""
    step = estimate_step(job.model, cluster.hardware, layout, job.measured.get(cluster.name))
    work = job.steps * step.step_seconds
    checkpoint = 12 * job.model.parameters / (CHECKPOINT_BYTES_PER_SECOND * cluster.machines)
    failures = estimate_failures(work, cluster.hardware.devices_hours_between_failures, cluster.devices, checkpoint, job.restart_seconds)
    hours = failures.expected_seconds / 3600
    return PlanCandidate(cluster, layout, step, work / 3600, failures, hours * cluster.devices * cluster.hardware.price_per_device_hour)


def find_candidates(job: TrainingJob, clusters: Sequence[Cluster]) -> list[PlanCandidate]:
    """All layouts that fit into memory, each in the fewest passes with which it does, the fastest first. Raises ConfigError if there is
    none, with the one that comes nearest."""
    candidates, nearest = [], None
    for cluster, layout in _layouts(job, clusters):
        measured = job.measured.get(cluster.name)
        available = usable_bytes(cluster.hardware) - (measured.process_bytes if measured else 0.0)
        for variant in [layout] if job.pass_rows else more_passes(layout, job.model):
            if not job.pass_rows and variant.accumulation * max(job.shards, layout.readers) > job.global_batch:
                break  # a shard has a row in each pass
            missing = estimate_memory(job.model, variant).total - available
            if missing <= 0:  # the fewer passes, the faster
                candidates.append(evaluate(job, cluster, variant))
                break
            if nearest is None or missing < nearest[0]:
                nearest = missing, cluster, variant
    if candidates:
        return sorted(candidates, key=lambda candidate: candidate.failures.expected_seconds)
    names = ", ".join(cluster.name for cluster in clusters)
    if nearest is None and job.pass_rows:
        raise ConfigError(
            f"the {job.global_batch // job.pass_rows} passes of a step can be divided over none of {names}; choose a number of workers "
            "that divides them"
        )
    if nearest is None:
        raise ConfigError(
            f"a global batch of {job.global_batch} rows can be divided over no layout of {names}; set it to a multiple of the devices"
        )
    missing, cluster, layout = nearest
    raise ConfigError(
        f"{job.model.name} fits on none of {names}: nearest is {cluster.name} with {layout.describe()}, which lacks "
        f"{missing / 2**30:.1f} GiB per device; add devices, or choose ones with more memory"
    )


def _layouts(job: TrainingJob, clusters: Sequence[Cluster]) -> Iterator[tuple[Cluster, ParallelLayout]]:
    for cluster in clusters:
        machine = cluster.hardware.devices_per_machine
        precision = cluster.hardware.automatic_precision if job.precision == "auto" else job.precision
        if job.pass_rows:
            yield from ((cluster, layout) for layout in _layouts_of_passes(job, cluster.devices, precision))
            continue
        for layout in enumerate_layouts(job.model, cluster.devices, machine, job.global_batch, precision, job.compiles):
            if job.shards <= layout.readers or job.shards % layout.readers == 0:
                yield cluster, layout


def _layouts_of_passes(job: TrainingJob, workers: int, precision: Precision) -> Iterator[ParallelLayout]:
    """The layout in which workers share passes of a fixed number of rows, if these can be divided."""
    passes = job.global_batch // job.pass_rows
    if passes % workers == 0:
        yield ParallelLayout(
            replicate=workers,
            microbatch=job.pass_rows,
            accumulation=passes // workers,
            full_copies=True,
            precision=precision,
            compile=job.compiles[0],
        )


def choose_plans(job: TrainingJob, candidates: Sequence[PlanCandidate]) -> list[BestPlan]:
    """The best candidates: the fastest, the cheapest, and those within the deadline and the budget. Raises ConfigError if none is within
    one of them, with the one that comes nearest."""
    fastest = min(candidates, key=lambda candidate: candidate.expected_hours)
    cheapest = min(candidates, key=lambda candidate: (candidate.cost, candidate.expected_hours))
    choices = [
        BestPlan("fastest", fastest, f"No other is faster; most of its step goes to {fastest.step.limit}."),
        BestPlan(
            "cheapest", cheapest, f"No other costs less; it takes {cheapest.expected_hours / fastest.expected_hours:.1f} times as long."
        ),
    ]
    if job.deadline_hours < inf:
        in_time = [candidate for candidate in candidates if candidate.expected_hours <= job.deadline_hours]
        if not in_time:
            raise ConfigError(
                f"no candidate ends within {job.deadline_hours:g} hours: nearest is {_summary(fastest)}, which lacks "
                f"{fastest.expected_hours - job.deadline_hours:.1f} hours; raise the deadline, or add devices"
            )
        best = min(in_time, key=lambda candidate: (candidate.cost, candidate.expected_hours))
        reason = f"Of {len(in_time)} that end within {job.deadline_hours:g} hours, it costs least."
        choices.append(BestPlan("cheapest within the deadline", best, reason))
    if job.budget < inf:
        affordable = [candidate for candidate in candidates if candidate.cost <= job.budget]
        if not affordable:
            raise ConfigError(
                f"no candidate costs at most {job.budget:g}: nearest is {_summary(cheapest)}, which lacks "
                f"{cheapest.cost - job.budget:.2f}; raise the budget, or lower the rows"
            )
        best = min(affordable, key=lambda candidate: candidate.expected_hours)
        reason = f"Of {len(affordable)} that cost at most {job.budget:g}, it is the fastest."
        choices.append(BestPlan("fastest within the budget", best, reason))
    return choices


def _summary(candidate: PlanCandidate) -> str:
    return f"{candidate.cluster.name} with {candidate.layout.describe()}"

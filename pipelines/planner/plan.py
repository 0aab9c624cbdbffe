"""Plans the training of a config, or of a transformer that no config trains: candidates on the hardware that is named, or one layout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from pipelines.config import Config
from pipelines.config.durations import duration_seconds
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, DatasetError
from pipelines.planning.candidates import BestPlan, PlanCandidate, TrainingJob, choose_plans, evaluate, find_candidates
from pipelines.planning.hardware import Cluster, parse_clusters
from pipelines.planning.layouts import ParallelLayout, check_layout, parse_layout
from pipelines.planning.transformer import parse_transformer

DEFAULT_GLOBAL_BATCH = 512
"""Rows of a step where no config and no layout says how many."""

_UNKNOWN_STEPS = 100_000
"""By which candidates are compared if the number of rows is unknown."""


@dataclass(frozen=True)
class PlanRequest:
    """The options of a plan, beside the config; numbers that are not given are 0."""

    hardware: str
    """Clusters, such as `h200x8,a100x64`."""
    model: str = ""
    """A transformer in place of the config's model, by name or by its shape."""
    layout: str = ""
    """The one layout to estimate, such as `replicate=1,shard=8`."""
    microbatch: int = 0
    accumulation: int = 0
    global_batch: int = 0
    rows: float = 0
    """Rows to train on in all; by default those of the dataset version, times the epochs."""
    deadline_hours: float = inf
    budget: float = inf
    folder: Path | None = None
    """Of data sheets besides those of the package."""


@dataclass(frozen=True)
class TrainingPlan:
    """Candidates, the fastest first, with the best of each kind."""

    job: TrainingJob
    candidates: Sequence[PlanCandidate]
    choices: Sequence[BestPlan]
    config: Config | None
    notes: Sequence[str]
    """What the plan assumes."""
    has_rows: bool
    """Whether it is known how many rows are trained on, and so hours and costs."""


def parse_request(
    hardware: str, model: str, layout: str, deadline: str, numbers: Mapping[str, float], folder: Path | None = None
) -> PlanRequest:
    """The options of a plan as texts and numbers; an empty text or a 0 is not given. Raises ConfigError for a deadline that is no time, and
    for a number below 0."""
    seconds = duration_seconds(deadline)
    if deadline and not seconds:
        raise ConfigError(f"deadline is {deadline!r}, which is no time; give one such as 90m, 4h or 2d")
    for name, number in numbers.items():
        if number < 0:
            raise ConfigError(f"{name} is {number:g}, which is below 0; give a number above 0, or leave it out")
    return PlanRequest(
        hardware,
        model,
        layout,
        microbatch=int(numbers.get("microbatch", 0)),
        accumulation=int(numbers.get("accumulation", 0)),
        global_batch=int(numbers.get("global_batch", 0)),
        rows=numbers.get("rows", 0.0),
        deadline_hours=seconds / 3600 if seconds else inf,
        budget=numbers.get("budget", 0.0) or inf,
        folder=folder,
    )


def make_plan(request: PlanRequest, config: Config | None = None) -> TrainingPlan:
    """Plan the training of `config`, or of `request.model`. Raises ConfigError for hardware, a model or a layout that is unknown or does
    not fit, and if no candidate fits; it says then which comes nearest."""
    clusters = parse_clusters(request.hardware, request.folder)
    if config is None and not request.model:
        raise ConfigError("there is neither a config nor --model; give CONF.yaml, or a model such as llama3-8b")
    layout = _parse_request_layout(request, config)
    job, notes, has_rows = _job(request, config, layout)
    if layout is not None:
        candidates = [_evaluate_layout(job, cluster, layout) for cluster in clusters]
        return TrainingPlan(job, sorted(candidates, key=lambda candidate: candidate.step.step_seconds), (), config, notes, has_rows)
    candidates = find_candidates(job, clusters)
    return TrainingPlan(job, candidates, choose_plans(job, candidates), config, notes, has_rows)


def _parse_request_layout(request: PlanRequest, config: Config | None) -> ParallelLayout | None:
    if not request.layout:
        return None
    further = {name: value for name in ("microbatch", "accumulation") if (value := getattr(request, name))}
    layout = parse_layout(request.layout, **further)
    if config is not None and "microbatch" not in request.layout and not request.microbatch:
        rows = config.train.global_batch // layout.readers // layout.accumulation
        return replace(layout, microbatch=max(1, rows))
    return layout


def _job(request: PlanRequest, config: Config | None, layout: ParallelLayout | None) -> tuple[TrainingJob, list[str], bool]:
    """The training, assumptions about it, and whether its number of rows is known."""
    notes: list[str] = []
    version = _version(config, notes) if config is not None and not request.model else None
    model = parse_transformer(request.model) if request.model or config is None else config_costs(config, version)
    global_batch = layout.global_batch if layout else request.global_batch
    precision = "auto"
    if config is not None:
        global_batch, precision = global_batch or config.train.global_batch, config.train.precision
    if not global_batch:
        global_batch = DEFAULT_GLOBAL_BATCH
        notes.append(f"a step has {global_batch} rows; --global-batch gives another number")
    rows = request.rows or _row_total(config, version)
    if not rows:
        notes.append("how many rows are trained on is unknown, and so are hours and costs; --rows gives the number")
    job = TrainingJob(
        model,
        rows=rows or _UNKNOWN_STEPS * global_batch,
        global_batch=global_batch,
        precision=precision,  # type: ignore[arg-type]  # a config's names are among them
        shards=0 if config is None or layout else config.train.shards,
        deadline_hours=request.deadline_hours,
        budget=request.budget,
    )
    return job, notes, bool(rows)


def _version(config: Config, notes: list[str]) -> Version | None:
    """The config's dataset version; None if it is not made yet, which changes what can be known."""
    try:
        return open_fold(config)
    except DatasetError:
        notes.append("there is no dataset version yet: vocabularies are as large as the settings allow, and labels have three classes")
        return None


def _row_total(config: Config | None, version: Version | None) -> float:
    if config is None or version is None:
        return 0.0
    steps_per_epoch = version.rows("train") // config.train.global_batch
    steps = steps_per_epoch * config.train.epochs
    return float(min(steps, config.train.max_steps or steps) * config.train.global_batch)


def _evaluate_layout(job: TrainingJob, cluster: Cluster, layout: ParallelLayout) -> PlanCandidate:
    chosen = replace(layout, precision=cluster.hardware.automatic_precision if job.precision == "auto" else job.precision)
    check_layout(chosen, job.model, cluster.devices)
    return evaluate(job, cluster, chosen)

"""Plans the training of a config, or of a transformer that no config trains: candidates on the hardware that is named, or one layout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from pipelines.config import Config
from pipelines.config.durations import duration_seconds
from pipelines.config.train.strategy import DEFAULT_KIND
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, CorruptError, DatasetError
from pipelines.planning.candidates import BestPlan, PlanCandidate, TrainingJob, choose_plans, evaluate, find_candidates
from pipelines.planning.hardware import HERE, Cluster, parse_clusters, sheet_paths
from pipelines.planning.layouts import ParallelLayout, check_layout, parse_layout
from pipelines.planning.measured import MeasuredPasses
from pipelines.planning.model_costs import ModelCosts
from pipelines.planning.transformer import parse_transformer

DEFAULT_GLOBAL_BATCH = 512
"""Rows of a step where no config and no layout says how many."""

_UNKNOWN_STEPS = 100_000
"""By which candidates are compared if the number of rows is unknown."""


@dataclass(frozen=True)
class PlanRequest:
    """The options of a plan, beside the config; texts that are not given are empty, and numbers 0."""

    hardware: str = ""
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
    deadline: str = ""
    """A time, such as 4h."""
    budget: float = 0
    """In the currency of the prices."""
    folder: Path | None = None
    """Of data sheets besides those of the package."""
    measure: bool = False
    """Whether to time passes of the config's model on this machine, for the hardware `here`."""
    keep_compile: bool = False
    """Whether the model is compiled as the config has it, rather than wherever training allows it."""


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


def make_plan(
    request: PlanRequest, config: Config | None = None, clusters: Sequence[Cluster] = (), version: Version | None = None
) -> TrainingPlan:
    """Plan the training of `config`, or of `request.model`, on `clusters`, by default those of `request.hardware`, and on `version`, by
    default the one that the config describes. Raises ConfigError for hardware, a model or a layout that is unknown or does not fit, for an
    option out of its range, and if no candidate fits; it says then which comes nearest."""
    _check_request(request)
    _prepare_sheet(request)
    clusters = clusters or parse_clusters(request.hardware, request.folder)
    if config is None and not request.model:
        raise ConfigError("there is neither a config nor --model; give CONF.yaml, or a model such as llama3-8b")
    layout = _parse_request_layout(request, config)
    job, notes, has_rows = _job(request, config, layout, version)
    notes += _hardware_notes(clusters)
    if request.measure:
        job = replace(job, measured=_time_passes(config, job.model, clusters))
    if layout is not None:
        candidates = [_evaluate_layout(job, cluster, layout) for cluster in clusters]
        return TrainingPlan(job, sorted(candidates, key=lambda candidate: candidate.step.step_seconds), (), config, notes, has_rows)
    candidates = find_candidates(job, clusters)
    return TrainingPlan(job, candidates, choose_plans(job, candidates), config, notes, has_rows)


def _check_request(request: PlanRequest) -> None:
    if request.deadline and not duration_seconds(request.deadline):
        raise ConfigError(f"deadline is {request.deadline!r}, which is no time; give one such as 90m, 4h or 2d")
    for name in ("microbatch", "accumulation", "global_batch", "rows", "budget"):
        if (number := getattr(request, name)) < 0:
            raise ConfigError(f"{name} is {number:g}, which is below 0; give a number above 0, or leave it out")


def _parse_request_layout(request: PlanRequest, config: Config | None) -> ParallelLayout | None:
    """The layout to estimate; None for all. Its passes have all rows of the config's step, unless their number is given."""
    if not request.layout:
        return None
    layout = parse_layout(request.layout, microbatch=request.microbatch, accumulation=request.accumulation or 1)
    if layout.microbatch:
        return layout
    if config is None:
        return replace(layout, microbatch=1)
    global_batch = request.global_batch or config.train.global_batch
    passes = layout.readers * layout.accumulation
    if global_batch % passes:
        raise ConfigError(
            f"layout: {passes} passes of a step, replicate {layout.replicate} * shard {layout.shard} * accumulation {layout.accumulation}, "
            f"do not divide its {global_batch} rows; give degrees that do, or --microbatch for the rows of a pass"
        )
    return replace(layout, microbatch=global_batch // passes)


def _prepare_sheet(request: PlanRequest) -> None:
    """Measure this machine if it is to be planned for, and has no data sheet yet."""
    if request.measure and request.folder is not None and HERE not in sheet_paths(request.folder):
        from pipelines.planner.calibration import write_sheet  # noqa: PLC0415  # takes a second, and few plans measure

        write_sheet(request.folder)


def _time_passes(config: Config | None, model: ModelCosts, clusters: Sequence[Cluster]) -> dict[str, MeasuredPasses]:
    """Passes of the config's model on this machine, for each number of its cores that is to be planned for."""
    clusters = [cluster for cluster in clusters if cluster.hardware.name == HERE and cluster.machines == 1]
    if config is None or not clusters:
        raise ConfigError(
            f"--measure times the model of a config on this machine; give CONF.yaml, and --hardware {HERE} with at most as many workers as "
            "cores"
        )
    from pipelines.planner.pass_timing import time_passes  # noqa: PLC0415

    version = open_fold(config)
    strategy = config.train.strategy if config.train.strategy.rows_per_pass(config.train) else DEFAULT_KIND
    return {cluster.name: time_passes(config, version, model, cluster.devices, strategy) for cluster in clusters}


def _hardware_notes(clusters: Sequence[Cluster]) -> list[str]:
    """Prices of the hardware, and its figures that are assumed."""
    notes = []
    for hardware in {cluster.hardware.name: cluster.hardware for cluster in clusters}.values():
        fractions = [name for name, fraction in hardware.achieved if fraction.basis == "assumed"]
        assumed = f"; reached fractions of {', '.join(fractions)} are not measured" if fractions else ""
        notes.append(f"{hardware.name} costs {hardware.price_per_device_hour:g} per device and hour ({hardware.price_source}){assumed}")
    return notes


def _job(
    request: PlanRequest, config: Config | None, layout: ParallelLayout | None, version: Version | None
) -> tuple[TrainingJob, list[str], bool]:
    """The training, assumptions about it, and whether its number of rows is known."""
    notes: list[str] = []
    if version is None and config is not None and not request.model:
        version = _version(config, notes)
    model = parse_transformer(request.model) if request.model or config is None else config_costs(config, version)
    global_batch = layout.global_batch if layout else request.global_batch
    precision = "auto"
    is_fixed = config is not None and not request.model and layout is None
    pass_rows = config.train.strategy.rows_per_pass(config.train) if config is not None and is_fixed else 0
    if config is not None:
        global_batch, precision = global_batch or config.train.global_batch, config.train.precision
    if not global_batch:
        global_batch = DEFAULT_GLOBAL_BATCH
        notes.append(f"a step has {global_batch} rows; --global-batch gives another number")
    rows = request.rows or _row_total(config, version)
    limit = "deadline" if request.deadline else "budget" if request.budget else ""
    if not rows and limit:
        raise ConfigError(
            f"{limit} is {getattr(request, limit)}, but how many rows are trained on is unknown, and so are hours and costs; give --rows"
        )
    if not rows:
        notes.append("how many rows are trained on is unknown, and so are hours and costs; --rows gives the number")
    seconds = duration_seconds(request.deadline)
    job = TrainingJob(
        model,
        rows=rows or _UNKNOWN_STEPS * global_batch,
        global_batch=global_batch,
        precision=precision,  # type: ignore[arg-type]  # a config's names are among them
        shards=0 if config is None or layout else config.train.shards,
        pass_rows=pass_rows,
        compiles=(config.train.compile,) if config is not None and (request.keep_compile or pass_rows) else (True, False),
        deadline_hours=seconds / 3600 if seconds else inf,
        budget=request.budget or inf,
    )
    return job, notes, bool(rows)


def _version(config: Config, notes: list[str]) -> Version | None:
    """The config's dataset version; None if there is none to train on, with a note of what is counted instead. Raises CorruptError."""
    try:
        return open_fold(config)
    except CorruptError:
        raise
    except DatasetError as error:
        notes.append(f"vocabularies are as large as settings allow, and labels have three classes, since {error}")
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

"""Predicted against measured steps and memory on this machine: pipelines of conf/, by the project's training loop.

    python -m benchmarks.planning.measured [--only digits adult …] [--layouts ddp exact …] [--seconds 2] [--turns 5]

Before each training, passes of the model are timed in as many processes at once, as `lockstep plan --measure` does; the machine's data
sheet is measured first. A prediction knows these, and nothing of training on several processes. Measured are steps of the loop itself,
with its loader, over Gloo, without Ray and without saves. Raw data are read from LOCKSTEP_RAW; a pipeline without them is left out.

The cores of a shared machine are slower by a third for seconds at a time. So the same processes time passes and train in turns, a ratio is
of one turn, of the lower quartile of steps in both, and the median of the ratios counts.

Prints seconds of a step and gigabytes of a worker, with their ratios, and writes measured-<machine>-<date>.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config import Config, from_command_line
from pipelines.config.train.strategy import DEFAULT_KIND
from pipelines.config.train.train import Train
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.versions import Version
from pipelines.errors import LockstepError
from pipelines.planner.calibration import write_sheet
from pipelines.planner.pass_timing import (
    UNDISTURBED,
    StrategyChoice,
    TimedCase,
    case_config,
    choose_cases,
    fit_passes,
    process_bytes,
    smallest_case,
    step_seconds,
    time_loader,
    time_round,
)
from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import HERE, Hardware, read_hardware
from pipelines.planning.layouts import ParallelLayout, layout_fault
from pipelines.planning.model_costs import ModelCosts
from pipelines.planning.step_time import estimate_step
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.step_clock import peak_bytes
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

ROOT = Path(__file__).parents[2]
PIPELINES = (
    "digits",
    "adult",
    "california",
    "linear",
    "mnist",
    "trec",
    "mr",
    "sst2",
    "movielens",
    "video_games",
    "spoken_digits",
    "membrane",
    "hippocampus",
    "burgers",
    "blood_cells",
    "shakespeare",
    "etth1",
)
"""Those of conf/ whose raw data stand on this machine, and that `ddp` trains."""
SHARDED = {"sharded": {"shard": 2}, "tensor 2": {"shard": 1, "tensor": 2}, "pipeline 2": {"shard": 1, "pipeline": 2}}
ON_FOUR = {"sharded on 4": {"shard": 4}, "tensor 2 on 4": {"shard": 2, "tensor": 2}, "pipeline 2 on 4": {"shard": 2, "pipeline": 2}}
_WARM_UP = 3
_ENDLESS = {"max_steps": 100_000, "epochs": 1_000, "lr": 1e-30, "checkpoint": {"every_steps": 100_000}}
"""A training whose weights stay, so that no epoch after the first is the best and is saved: steps are timed without saves beside them."""
LAYOUTS = ("ddp on 1", "ddp on 2", "exact on 1", "exact on 2", *SHARDED, *ON_FOUR)


class _Watch(Hooks):
    """Notes what steps take from the start of one to that of the next, and stops the loop in time. An epoch's last step is left out, since
    the validation comes before the next start."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._started: float | None = None
        self.step_seconds: list[float] = []

    def epoch(self, number: int) -> None:
        self._started = None

    def step(self, number: int) -> None:
        now = time.perf_counter()
        if self._started is not None:
            self.step_seconds.append(now - self._started)
        self._started = now

    def must_stop_training(self) -> bool:
        return time.monotonic() > self._deadline and len(self.step_seconds) > 2 * _WARM_UP


def train_for(config: Config, version: Version, seconds: float, folder: str) -> float:
    """Seconds of the training loop's steps, which is run for so many seconds."""
    context = WorkerContext(dist.get_rank(), dist.get_world_size())
    task = build_task(config.task, version.manifest)
    watch = _Watch(seconds)
    checkpoints = Checkpoints(RunDirectory(folder), context, 2)
    Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, watch).run()
    return float(np.quantile(watch.step_seconds[_WARM_UP:], UNDISTURBED))


@dataclass(frozen=True)
class Turns:
    """What one process has measured: in every turn, seconds of steps of all timed cases, and of a training's step."""

    cases: Sequence[Sequence[np.ndarray]]
    step_seconds: Sequence[float]
    loader_rows_per_second: float
    peak_bytes: float
    """The most memory of the process in a training, before anything else."""


def take_turns(config: Config, version: Version, cases: Sequence[TimedCase], seconds: float, turns: int, folder: str) -> Turns:
    """Time passes and train in turns. A training of its own comes first, for its memory."""
    train_for(config, version, 0.0, f"{folder}/memory")
    memory = peak_bytes(torch.device("cpu"))
    timed, trained = [], []
    for turn in range(turns):
        timed.append(time_round(config, version, cases, strategy_of_passes(config)))
        trained.append(train_for(config, version, seconds, f"{folder}/{turn}"))
    return Turns(timed, trained, time_loader(case_config(config, cases[-1], strategy_of_passes(config)), version), memory)


def time_for_memory(config: Config, version: Version, case: TimedCase) -> float:
    """The most memory of a process that times a case."""
    time_round(config, version, [case], strategy_of_passes(config))
    return peak_bytes(torch.device("cpu"))


def strategy_of_passes(config: Config) -> StrategyChoice:
    """The strategy of timed passes, which one worker can take: one whose passes do not depend on workers, or else the default."""
    return config.train.strategy if config.train.strategy.rows_per_pass(config.train) else DEFAULT_KIND


def worker_count(layout: str) -> int:
    """The workers of a layout by its name: two, where it does not say."""
    return int(layout.partition(" on ")[2] or 2)


def layout_config(config: Config, name: str) -> tuple[Config, ParallelLayout]:
    """The config that trains in a layout, and the layout."""
    kind, workers = name.partition(" on ")[0], worker_count(name)
    degrees: dict[str, Any] = {**SHARDED, **ON_FOUR}.get(name, {})
    values = config.train.model_dump(mode="json", exclude_unset=True, exclude={"init_from", "balance", "ema_decay"})
    values |= {"workers": workers, "strategy": {"kind": "sharded", **degrees} if degrees else kind, **_ENDLESS}
    if degrees and values.get("optimizer") == "muon":
        values["optimizer"] = "adamw"  # whose update takes a part of a matrix alone
    train = Train.model_validate(values)
    # A strategy whose passes do not depend on workers has one for each shard.
    passes = train.grad_accum_steps * (train.shards // workers if train.strategy.rows_per_pass(train) else 1)
    rows = train.global_batch // train.strategy.readers(workers) // passes
    layout = ParallelLayout(replicate=1 if degrees else workers, microbatch=rows, accumulation=passes, full_copies=not degrees)
    return config.model_copy(update={"train": train}), replace(layout, precision="fp32", **degrees)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline with its dataset version, and what its model costs."""

    config: Config
    version: Version
    model: ModelCosts


def compare(pipeline: Pipeline, name: str, sheets: Mapping[int, Hardware], seconds: float, turns: int) -> Row | None:
    """Predicted and measured figures, medians of so many turns of both; None for a layout that the model does not have. `sheets`: the data
    sheets of this machine by the processes in which it was measured."""
    config, version = pipeline.config, pipeline.version
    try:
        changed, layout = layout_config(config, name)
        fault = layout_fault(layout, pipeline.model)
    except ValueError as error:
        fault = next(line for line in str(error).splitlines() if not line.endswith("for Train"))
    if fault:
        print(f"{config.name}, {name}: left out: {fault}", file=sys.stderr)
        return None
    cases = choose_cases(changed, version, layout.workers)
    smallest = smallest_case(changed, cases)
    peaks = call_in_processes(layout.workers, time_for_memory, changed, version, smallest, threads=changed.train.cpus_per_worker)
    with tempfile.TemporaryDirectory(prefix="measured-") as folder:
        arguments = (changed, version, cases, seconds, turns, folder)
        processes = call_in_processes(layout.workers, take_turns, *arguments, threads=changed.train.cpus_per_worker)
    rate = min(process.loader_rows_per_second for process in processes)
    rounds = [step_seconds(of_workers) for of_workers in zip(*(process.cases for process in processes), strict=True)]
    hardware = sheets[min(count for count in sheets if count >= layout.workers)]
    estimates = [estimate_step(pipeline.model, hardware, layout, fit_passes(cases, times, rate)) for times in rounds]
    measured = processes[0].step_seconds
    predicted_bytes = estimates[0].memory.total + process_bytes(pipeline.model, smallest, max(peaks))
    measured_bytes = max(process.peak_bytes for process in processes)
    row: Row = {
        "pipeline": config.name,
        "layout": name,
        "predicted, ms": 1e3 * median(estimate.step_seconds for estimate in estimates),
        "measured, ms": 1e3 * median(measured),
        "ratio": median(estimate.step_seconds / step for estimate, step in zip(estimates, measured, strict=True)),
        "compute": 1e3 * median(estimate.compute_seconds for estimate in estimates),
        "comm.": 1e3 * estimates[0].communication_seconds,
        "bubble": 1e3 * median(estimate.bubble_seconds for estimate in estimates),
        "update": 1e3 * median(estimate.optimizer_seconds for estimate in estimates),
        "data": 1e3 * median(estimate.data_seconds for estimate in estimates),
        "predicted, GB": predicted_bytes / 1e9,
        "measured, GB": measured_bytes / 1e9,
        "memory ratio": predicted_bytes / measured_bytes,
    }
    print(row, file=sys.stderr, flush=True)
    return row


def open_pipeline(name: str) -> Pipeline:
    """The pipeline with its dataset version, which is made if there is none."""
    path = str(ROOT / f"conf/{name}.yaml")
    config = from_command_line("benchmarks.planning.measured", [path])
    try:
        version = open_fold(config)
    except LockstepError:
        subprocess.run(["spark-submit", "jobs/etl.py", path], cwd=ROOT, check=True, capture_output=True)
        version = open_fold(config)
    return Pipeline(config, version, config_costs(config, version))


def measure_sheets(layouts: Sequence[str]) -> dict[int, Hardware]:
    """The data sheets of this machine, measured in as many processes as it has cores, and in as many more as a layout has workers."""
    cores = len(os.sched_getaffinity(0))
    counts = {cores, *(count for count in map(worker_count, layouts) if count > cores)}
    with tempfile.TemporaryDirectory(prefix="sheets-") as folder:
        return {count: read_hardware(HERE, write_sheet(Path(folder) / str(count), count).parent) for count in counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PIPELINES, default=PIPELINES, metavar="PIPELINE")
    parser.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=LAYOUTS, metavar="LAYOUT", help=f"of {', '.join(LAYOUTS)}")
    parser.add_argument("--seconds", type=float, default=2, help="of each training")
    parser.add_argument("--turns", type=int, default=5, help="of timing passes and training, one after the other, of which medians count")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    os.environ.setdefault("LOCKSTEP_RAW", str(ROOT.parent / "shared" / "data"))
    os.environ.setdefault("LOCKSTEP_HOME", str(ROOT))
    sheets = measure_sheets(arguments.layouts)
    rows: list[Row] = []
    for name in arguments.only:
        try:
            pipeline = open_pipeline(name)
        except (LockstepError, subprocess.CalledProcessError) as error:
            print(f"{name}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        rows += [row for layout in arguments.layouts if (row := compare(pipeline, layout, sheets, arguments.seconds, arguments.turns))]
    errors = {name: sorted(abs(float(str(row[name])) - 1) for row in rows) for name in ("ratio", "memory ratio")}
    summary: list[Row] = [{"of": name, "rows": len(rows), "median": median(values), "worst": values[-1]} for name, values in errors.items()]
    tables = {"steps": rows, "errors": summary}
    for title, table in tables.items():
        show(title, table)
    print(save("measured", tables, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()

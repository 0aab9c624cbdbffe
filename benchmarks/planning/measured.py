"""Predicted against measured steps and memory on this machine: pipelines of conf/, by the project's training loop.

    python -m benchmarks.planning.measured [--only digits adult …] [--layouts ddp exact …] [--seconds 6] [--turns 3]

Before each training, passes of the model are timed in as many processes at once, as `lockstep plan --measure` does; the machine's data
sheet is measured first. A prediction knows these, and nothing of training on several processes. Measured are steps of the loop itself,
with its loader, over Gloo, without Ray and without saves. Raw data are read from LOCKSTEP_RAW; a pipeline without them is left out.

Prints seconds of a step and gigabytes of a worker, with their ratios, and writes measured-<machine>-<date>.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch.distributed as dist

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config import Config, from_command_line
from pipelines.config.paths import home
from pipelines.config.train.train import Train
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.versions import Version
from pipelines.errors import LockstepError
from pipelines.planner.calibration import HERE, write_sheet
from pipelines.planner.pass_timing import time_passes
from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import Hardware, read_hardware
from pipelines.planning.layouts import ParallelLayout, layout_fault
from pipelines.planning.model_costs import ModelCosts
from pipelines.planning.step_time import StepEstimate, estimate_step
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


@dataclass(frozen=True)
class Measurement:
    """A training of some seconds: the median of its steps, and the most memory of a worker."""

    step_seconds: float
    peak_bytes: float


class _Watch(Hooks):
    """Notes when steps begin, and stops the loop in time."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.starts: list[float] = []

    def step(self, number: int) -> None:
        self.starts.append(time.perf_counter())

    def must_stop_training(self) -> bool:
        return time.monotonic() > self._deadline and len(self.starts) > 2 * _WARM_UP


def train_for(config: Config, version: Version, seconds: float, folder: str) -> Measurement:
    """The training loop's steps in so many seconds, and the most memory that this process has had."""
    context = WorkerContext(dist.get_rank(), dist.get_world_size())
    task = build_task(config.task, version.manifest)
    watch = _Watch(seconds)
    checkpoints = Checkpoints(RunDirectory(folder), context, 2)
    Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, watch).run()
    steps = [second - first for first, second in pairwise(watch.starts[_WARM_UP:])]
    return Measurement(median(steps), peak_bytes(context.device))


def measure(config: Config, version: Version, seconds: float) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="measured-") as folder:
        workers = config.train.max_workers
        answers = call_in_processes(workers, train_for, config, version, seconds, folder, threads=config.train.cpus_per_worker)
    return Measurement(answers[0].step_seconds, max(answer.peak_bytes for answer in answers))


def layout_config(config: Config, name: str) -> tuple[Config, ParallelLayout]:
    """The config that trains in a layout, and the layout."""
    kind, _, workers_text = name.partition(" on ")
    workers = int(workers_text or 2)
    degrees: dict[str, Any] = {**SHARDED, **ON_FOUR}.get(name, {})
    values = config.train.model_dump(mode="json", exclude_unset=True, exclude={"init_from", "balance", "ema_decay"})
    values |= {"workers": workers, "strategy": {"kind": "sharded", **degrees} if degrees else kind, **_ENDLESS}
    train = Train.model_validate(values)
    # A strategy whose passes do not depend on workers has one for each shard.
    passes = train.grad_accum_steps * (train.shards // workers if train.strategy.rows_per_pass(train) else 1)
    rows = train.global_batch // train.strategy.readers(workers) // passes
    layout = ParallelLayout(replicate=1 if degrees else workers, microbatch=rows, accumulation=passes, full_copies=not degrees)
    return config.model_copy(update={"train": train}), replace(layout, precision="fp32", **degrees)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline with its dataset version, what its model costs, and this machine."""

    config: Config
    version: Version
    model: ModelCosts
    hardware: Hardware


def predict(pipeline: Pipeline, layout: ParallelLayout, kind: str) -> tuple[StepEstimate, float]:
    """The estimate of a step, and the most memory of a process, by passes that are timed now."""
    config = pipeline.config
    settings = config.train.strategy if kind == config.train.strategy.kind else kind
    passes = time_passes(config, pipeline.version, pipeline.model, layout.workers, settings)
    estimate = estimate_step(pipeline.model, pipeline.hardware, layout, passes)
    return estimate, estimate.memory.total + passes.process_bytes


def compare(pipeline: Pipeline, name: str, seconds: float, turns: int) -> Row | None:
    """Predicted and measured figures, medians of so many turns of both; None for a layout that the model does not have."""
    config = pipeline.config
    try:
        changed, layout = layout_config(config, name)
        fault = layout_fault(layout, pipeline.model)
    except ValueError as error:
        fault = str(error).splitlines()[0]
    if fault:
        print(f"{config.name}, {name}: left out: {fault}", file=sys.stderr)
        return None
    figures: list[dict[str, float]] = []
    for _ in range(turns):
        estimate, predicted_bytes = predict(pipeline, layout, "exact" if name.startswith("exact") else "ddp")
        measured = measure(changed, pipeline.version, seconds)
        figures.append(
            {
                "predicted, ms": 1e3 * estimate.step_seconds,
                "measured, ms": 1e3 * measured.step_seconds,
                "ratio": estimate.step_seconds / measured.step_seconds,
                "compute": 1e3 * estimate.compute_seconds,
                "comm.": 1e3 * estimate.communication_seconds,
                "update": 1e3 * estimate.optimizer_seconds,
                "data": 1e3 * estimate.data_seconds,
                "predicted, GB": predicted_bytes / 1e9,
                "measured, GB": measured.peak_bytes / 1e9,
                "memory ratio": predicted_bytes / measured.peak_bytes,
            }
        )
    medians = {column: median(turn[column] for turn in figures) for column in figures[0]}
    row: Row = {"pipeline": config.name, "layout": name, **medians}
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
    return Pipeline(config, version, config_costs(config, version), read_hardware(HERE, home() / "conf" / "hardware"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PIPELINES, default=PIPELINES, metavar="PIPELINE")
    parser.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=LAYOUTS, metavar="LAYOUT", help=f"of {', '.join(LAYOUTS)}")
    parser.add_argument("--seconds", type=float, default=6, help="of each training")
    parser.add_argument("--turns", type=int, default=3, help="of timing passes and training, one after the other, of which medians count")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    os.environ.setdefault("LOCKSTEP_RAW", str(ROOT.parent / "shared" / "data"))
    os.environ.setdefault("LOCKSTEP_HOME", str(ROOT))
    write_sheet(home() / "conf" / "hardware")
    rows: list[Row] = []
    for name in arguments.only:
        try:
            pipeline = open_pipeline(name)
        except (LockstepError, subprocess.CalledProcessError) as error:
            print(f"{name}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        rows += [row for layout in arguments.layouts if (row := compare(pipeline, layout, arguments.seconds, arguments.turns))]
    errors = {name: sorted(abs(float(str(row[name])) - 1) for row in rows) for name in ("ratio", "memory ratio")}
    summary: list[Row] = [{"of": name, "rows": len(rows), "median": median(values), "worst": values[-1]} for name, values in errors.items()]
    tables = {"steps": rows, "errors": summary}
    for title, table in tables.items():
        show(title, table)
    print(save("measured", tables, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()

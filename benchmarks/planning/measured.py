"""Predicted against measured steps and memory on this machine: pipelines of conf/, by the project's training loop.

    python -m benchmarks.planning.measured [--only digits adult …] [--layouts ddp exact …] [--seconds 6] [--results FOLDER]

Before each pipeline, its passes are timed on one process and on two at once, as `lockstep plan --measure` does; the machine's data sheet is
measured first. A prediction knows these, and nothing of training on several processes. Measured are steps of the loop itself, with its
loader, over Gloo, without Ray. Raw data are read from LOCKSTEP_RAW; a pipeline without them is left out.

Prints seconds of a step and gigabytes of a worker, with their ratios, and writes measured-<machine>-<date>.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch.distributed as dist

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config import Config, from_command_line
from pipelines.config.load import home
from pipelines.config.train.train import Train
from pipelines.costs.config_costs import config_costs
from pipelines.data.versions.folds import open_fold
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError, LockstepError
from pipelines.planner.calibration import HERE, write_sheet
from pipelines.planner.pass_timing import time_passes
from pipelines.planner.processes import call_in_processes
from pipelines.planning.hardware import read_hardware
from pipelines.planning.layouts import ParallelLayout, layout_fault
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
    strategy: dict[str, Any] = {"kind": kind}
    if degrees := {**SHARDED, **ON_FOUR}.get(name):
        strategy = {"kind": "sharded", **degrees}
    values = config.train.model_dump(mode="json", exclude_unset=True, exclude={"init_from", "balance", "ema_decay"})
    values |= {"workers": workers, "strategy": strategy, "max_steps": 100_000, "epochs": 1_000}
    train = Train.model_validate(values)
    changed = config.model_copy(update={"train": train})
    readers = train.strategy.readers(workers)
    if kind == "exact":
        passes = train.shards // workers * train.grad_accum_steps
        rows = train.global_batch // train.shards // train.grad_accum_steps
        return changed, ParallelLayout(replicate=workers, microbatch=rows, accumulation=passes, full_copies=True, precision="fp32")
    rows = train.global_batch // readers // train.grad_accum_steps
    common: dict[str, Any] = {"microbatch": rows, "accumulation": train.grad_accum_steps, "precision": "fp32"}
    if kind == "ddp":
        return changed, ParallelLayout(replicate=workers, full_copies=True, **common)
    return changed, ParallelLayout(**{"shard": 1, **(degrees or {})}, **common)


def compare(config: Config, version: Version, name: str, seconds: float, passes: dict[Any, Any]) -> Row | None:
    """Predicted and measured figures; None for a layout that the model does not have."""
    try:
        changed, layout = layout_config(config, name)
        model = passes.setdefault("model", None) or config_costs(config, version)
    except (ConfigError, ValueError) as error:
        print(f"{config.name}, {name}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    passes["model"] = model
    if fault := layout_fault(layout, model):
        print(f"{config.name}, {name}: left out: {fault}", file=sys.stderr)
        return None
    kind = "exact" if name.startswith("exact") else "ddp"
    key = (kind, layout.workers)
    if key not in passes:
        strategy = config.train.strategy if kind == config.train.strategy.kind else kind
        passes[key] = time_passes(config, version, layout.workers, strategy)
    hardware = read_hardware(HERE, home() / "conf" / "hardware")
    estimate: StepEstimate = estimate_step(model, hardware, layout, passes[key])
    measured = measure(changed, version, seconds)
    row: Row = {
        "pipeline": config.name,
        "layout": name,
        "predicted, ms": 1e3 * estimate.step_seconds,
        "measured, ms": 1e3 * measured.step_seconds,
        "ratio": estimate.step_seconds / measured.step_seconds,
        "compute": 1e3 * estimate.compute_seconds,
        "comm.": 1e3 * estimate.communication_seconds,
        "update": 1e3 * estimate.optimizer_seconds,
        "data": 1e3 * estimate.data_seconds,
        "predicted, GB": estimate.memory.total / 1e9,
        "peak of the process, GB": measured.peak_bytes / 1e9,
    }
    print(row, flush=True)
    return row


def open_version(name: str) -> tuple[Config, Version]:
    """The pipeline and its dataset version, which is made if there is none."""
    path = str(ROOT / f"conf/{name}.yaml")
    config = from_command_line("benchmarks.planning.measured", [path])
    try:
        return config, open_fold(config)
    except LockstepError:
        subprocess.run(["spark-submit", "jobs/etl.py", path], cwd=ROOT, check=True, capture_output=True)
        return config, open_fold(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PIPELINES, default=PIPELINES, metavar="PIPELINE")
    parser.add_argument("--layouts", nargs="*", choices=LAYOUTS, default=LAYOUTS, metavar="LAYOUT", help=f"of {', '.join(LAYOUTS)}")
    parser.add_argument("--seconds", type=float, default=6, help="of each training")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    os.environ.setdefault("LOCKSTEP_RAW", str(ROOT.parent / "shared" / "data"))
    os.environ.setdefault("LOCKSTEP_HOME", str(ROOT))
    write_sheet(home() / "conf" / "hardware")
    rows: list[Row] = []
    for name in arguments.only:
        try:
            config, version = open_version(name)
        except (LockstepError, subprocess.CalledProcessError) as error:
            print(f"{name}: left out: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        passes: dict[Any, Any] = {}
        rows += [row for layout in arguments.layouts if (row := compare(config, version, layout, arguments.seconds, passes))]
    errors = sorted(abs(float(row["ratio"]) - 1) for row in rows)
    summary: list[Row] = [{"rows": len(rows), "median error": median(errors), "worst error": errors[-1]}]
    tables = {"steps": rows, "errors of step seconds": summary}
    for title, table in tables.items():
        show(title, table)
    print(save("measured", tables, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()

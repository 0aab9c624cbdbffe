"""Measures what it costs to know where the time of a step goes: workers' clocks are on and off by turns.

    python -m benchmarks.train.timing [--small] [--workers 2] [--results FOLDER]

All workers turn their clocks on or off before the same steps. A ratio compares two consecutive turns, and the table has the median of
all pairs, with quartiles; on a busy machine, the processor time of the loop's thread tells more than the time that passed. "off" leaves
out the clock, the callback after the backward pass, and the meetings of the workers' sums.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.report import RESULTS, Row, package_versions, save, show
from benchmarks.train.cases import CASES, Case, case_config, write_version
from pipelines.data.versions.versions import open_version
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.step_clock import StepClock
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

SMALLEST = Case({"kind": "tabular", "hidden": [32, 32]}, {"encoder": "identity"}, 8, (), "float32", 1_600_000, 64, 200, 24_000)
NETWORKS = {
    "mnist, small network": replace(CASES["mnist, small network"], rows=230_000, warm_up=200, steps=1_500),
    "MLP 2 x 32 on 8 columns": SMALLEST,
}
TURN_STEPS = 50


class Turns(Hooks):
    """Turns the clock on and off, and keeps the seconds of each turn."""

    def __init__(self, warm_up: int) -> None:
        self.loop: Loop | None = None
        self.on: list[tuple[float, float]] = []
        self.off: list[tuple[float, float]] = []
        """Seconds that passed, and processor seconds of this thread."""
        self._warm_up, self._began, self._is_on = warm_up, (0.0, 0.0), True

    def step(self, number: int) -> None:
        if number < self._warm_up or number % TURN_STEPS:
            return
        passed, used = time.perf_counter() - self._began[0], time.thread_time() - self._began[1]
        if self._began[0]:
            (self.on if self._is_on else self.off).append((passed, used))
        self._is_on = not self._is_on
        self._set(self._is_on)
        self._began = time.perf_counter(), time.thread_time()

    def _set(self, on: bool) -> None:
        assert self.loop is not None, "set before it runs"
        run = self.loop.run_context
        clock, times = run.strategy.clock, run.phase_times
        for owner, name in ((clock, "enter"), (clock, "start_step"), (clock, "exchange_after_backward"), (times, "metrics")):
            if on:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, _no_metrics)


def _no_metrics(*_: Any) -> dict[str, float]:
    return {}


def work(rank: int, workers: int, case: Case, strategy: str, folder: str) -> None:
    torch.set_num_threads(1)
    if workers > 1:
        dist.init_process_group("gloo", f"file://{folder}/rendezvous", world_size=workers, rank=rank)
    config = case_config(case, Path(folder).parent)
    settings = {**config.train.model_dump(), "storage": f"{folder}/runs", "cache_bytes": 2**30, "strategy": strategy, "workers": workers}
    config = config.model_copy(update={"train": type(config.train).model_validate(settings)})
    version, context = open_version(config.dataset.path, config.data_identity), WorkerContext(rank, workers)
    task = build_task(config.task, version.manifest)
    hooks = Turns(case.warm_up)
    checkpoints = Checkpoints(RunDirectory(settings["storage"]), context, 1)
    hooks.loop = Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, hooks)
    hooks.loop.run()
    if rank == 0:
        torch.save((hooks.on, hooks.off), f"{folder}/seconds")
    if workers > 1:
        dist.destroy_process_group()


def measure_cost(home: Path, name: str, case: Case, strategy: str, workers: int) -> Row:
    folder = home / f"{name}-{strategy}".replace(" ", "-")
    folder.mkdir()
    mp.spawn(work, (workers, case, strategy, str(folder)), nprocs=workers)
    on, off = torch.load(folder / "seconds")
    passed, used = ([with_clock[kind] / without[kind] for with_clock, without in zip(on, off, strict=False)] for kind in (0, 1))
    return {
        "network": name,
        "strategy": strategy,
        "workers": workers,
        "step, ms": 1_000 * statistics.median(seconds for seconds, _ in off) / TURN_STEPS,
        "cost, %": _describe_quartiles(passed),
        "cost in processor time, %": _describe_quartiles(used),
        "pairs of turns": len(passed),
    }


def _describe_quartiles(ratios: list[float]) -> str:
    low, middle, high = (100 * (quartile - 1) for quartile in statistics.quantiles(ratios, n=4))
    return f"{middle:+.1f} ({low:+.1f} to {high:+.1f})"


def clock_row() -> Row:
    """The clock alone: one step's calls, without a step."""

    clock, steps = StepClock(), 100_000
    began = time.thread_time()
    for _ in range(steps):
        clock.enter("data")
        clock.start_step()
        for phase in ("forward", "backward", "exchange", "backward", "exchange", "optimizer", "other"):
            clock.enter(phase)
    return {"calls of one step": 9, "microseconds of processor time": 1e6 * (time.thread_time() - began) / steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few steps, to test that it runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="timing-", dir="/tmp") as text:
        for number, (name, case) in enumerate(NETWORKS.items()):
            home = Path(text) / str(number)
            home.mkdir()
            shorter = replace(case, rows=50_000, warm_up=50, steps=300) if arguments.small else case
            write_version(shorter, case_config(shorter, home))
            rows += [measure_cost(home, name, shorter, strategy, arguments.workers) for strategy in ("ddp", "exact")]
    tables = {"the cost of always-on timing": rows, "the clock alone": [clock_row()]}
    for title, table in tables.items():
        show(title, table)
    print(save("timing", tables, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()

"""Measures `train.balance`: two workers on a core each, one of which gets half of its core. Needs root and Linux's cgroups.

    python -m benchmarks.train.unequal [--small] [--results FOLDER]

"alone" are two trainings of one worker each, at the same time and with the same cores and quota: the sum of their rates is what
the two can do. A rate is that of the last half of the steps. The digests of `exact` must be equal; exits with 1 if they are not.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.report import RESULTS, Row, package_versions, save, show
from benchmarks.train.cases import CASES, Case, case_config, write_version
from pipelines.data.versions.versions import open_version
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

MODEL = "mnist, small network"
SHARDS, GLOBAL_BATCH = 24, 768
SLOW, SHARE = 1, 0.5
"""The slow worker, and its share of its core."""
PERIOD_MICROSECONDS = 10_000
"""The period over which the kernel grants a share."""
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


@contextmanager
def quota(share: float, name: str = "slow") -> Iterator[Path]:
    """A control group whose processes get `share` of a core together."""
    first, name, granted = V1.exists(), f"lockstep-{os.getpid()}-{name}", int(share * PERIOD_MICROSECONDS)
    group = (V1 if first else V2) / name
    group.mkdir()
    try:
        if first:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(granted))
        else:
            (group / "cpu.max").write_text(f"{granted} {PERIOD_MICROSECONDS}")
        yield group
    finally:
        group.rmdir()


class Timed(Hooks):
    """Keeps the time of every point, and how long the steps around a deal took."""

    def __init__(self) -> None:
        self.points: list[tuple[float, int]] = []
        self.dealt: list[int] = []

    def log(self, step: int, metrics: dict[str, float]) -> None:
        if any(name.startswith("balance/") for name in metrics):
            self.dealt.append(step)
        else:
            self.points.append((time.perf_counter(), step))

    def rows_per_second(self) -> float:
        """Of the last half of the steps."""
        late = [point for point in self.points if point[1] >= self.points[-1][1] / 2]
        (began, before), (ended, after) = late[0], late[-1]
        return GLOBAL_BATCH * (after - before) / (ended - began)

    def deal_seconds(self) -> float:
        """The longest time that a deal added to the steps between two points."""
        pairs = list(zip(self.points, self.points[1:], strict=False))
        usual = statistics.median(after[0] - before[0] for before, after in pairs)
        around = [after[0] - before[0] for before, after in pairs if any(before[1] <= step <= after[1] for step in self.dealt)]
        return max((seconds - usual for seconds in around), default=0.0)


def work(rank: int, worlds: list[int], case: Case, folder: str, settings: dict[str, Any], group: str) -> None:
    """One of two processes: a worker of a group of two, or each alone in a group of its own."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    if rank == SLOW:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    world = worlds[rank]
    context = WorkerContext(rank if world > 1 else 0, world)
    if world > 1:
        dist.init_process_group("gloo", f"file://{folder}/rendezvous", world_size=world, rank=rank)
    config = case_config(case, Path(folder).parent)
    train = {
        "shards": SHARDS,
        "global_batch": GLOBAL_BATCH,
        "workers": world,
        "cache_bytes": 2**30,
        "storage": f"{folder}/runs-{rank if world == 1 else 0}",
        **settings,
    }
    config = config.model_copy(update={"train": type(config.train).model_validate({**config.train.model_dump(), **train})})
    version = open_version(config.dataset.path)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    hooks = Timed()
    Loop(config, version, task, strategy, Checkpoints(RunDirectory(config.train.storage), context, 1), hooks).run()
    if context.rank == 0:
        torch.save((hooks.rows_per_second(), hooks.deal_seconds(), model_digest(strategy.model.state_dict())), f"{folder}/answer-{rank}")
    if world > 1:
        dist.destroy_process_group()


def answers(home: Path, name: str, worlds: list[int], case: Case, group: Path, **settings: Any) -> list[tuple[float, float, str]]:
    """Rate, seconds of a deal and digest of each training."""
    folder = home / name
    folder.mkdir()
    mp.spawn(work, (worlds, case, str(folder), settings, str(group)), nprocs=2)
    return [torch.load(path) for path in sorted(folder.glob("answer-*"))]


def table(home: Path, case: Case, strategy: str, group: Path) -> list[Row]:
    run = partial(answers, home, case=case, group=group, strategy=strategy)
    alone = [rate for rate, _, _ in run(f"{strategy}-alone", worlds=[1, 1])]
    rows: list[Row] = [{"strategy": strategy, "workers": "each alone, summed", "rows/s": round(sum(alone)), "of the sum": 1.0}]
    for balance in ("equal", "auto"):
        ((rate, dealing, digest),) = run(f"{strategy}-{balance}", worlds=[2, 2], balance=balance)
        rows.append(
            {
                "strategy": strategy,
                "workers": f"together, {balance}",
                "rows/s": round(rate),
                "of the sum": rate / sum(alone),
                "deal adds, s": dealing if balance == "auto" else None,
                "model digest": digest[:12],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few steps, to test that it runs")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    steps = 60 if arguments.small else arguments.steps
    case = replace(CASES[MODEL], rows=40_000 if arguments.small else 200_000, warm_up=0, steps=steps)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="unequal-", dir="/tmp") as text, quota(SHARE) as group:
        write_version(case, case_config(case, Path(text)))
        for strategy in ("ddp", "exact"):
            rows += table(Path(text), case, strategy, group)
    title = f"two workers, one on {SHARE:.0%} of a core: {MODEL}, {SHARDS} shards, {GLOBAL_BATCH} rows a step"
    show(title, rows)
    print(save("unequal", {title: rows}, package_versions("torch"), arguments.results))
    digests = {row["model digest"] for row in rows if row["strategy"] == "exact" and "model digest" in row}
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()

"""Measures asynchronous parameter servers: four workers, one of which has a quarter of the others' speed. Needs root and Linux's cgroups.

    python -m benchmarks.train.asynchronous [--small] [--quality] [--results FOLDER]

All workers run on one machine. Three get 0.4 of a core each and one gets 0.1, by a quota of the kernel for everything that the process
does; the servers have the rest. So computation takes longer than communication, as it does where machines have their own cores. A
rate is that of the last half of the steps, by worker 0.

`--quality` also trains adult and digits from their raw data (LOCKSTEP_RAW), with `bounded` and a staleness of 4. Exits with 1 if async
is less than WANTED times as fast as sync, or if a result is worse than its target.
"""

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray.actor import ActorHandle

from benchmarks.report import RESULTS, Row, package_versions, save, show
from benchmarks.train.cases import CASES, Case, case_config, write_version
from benchmarks.train.unequal import Timed, quota
from pipelines import api
from pipelines.config import Config
from pipelines.data.versions.versions import open_version
from pipelines.launch.cluster import cluster
from pipelines.strategies.parameter_server.parameter_server import ParameterServerStrategy
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

MODEL = "mnist, small network"
SHARDS, GLOBAL_BATCH, SERVERS = 8, 768, 2
SHARES = (0.4, 0.4, 0.4, 0.1)
"""Of a core, by worker."""
WANTED = 2.5
BOUNDED = {"mode": "bounded", "staleness": 4}
MODES: dict[str, dict[str, Any]] = {"sync": {"mode": "sync"}, "bounded, staleness 4": BOUNDED, "async": {"mode": "async"}}
TARGETS = {"adult": ("test/auc", 0.924), "digits": ("test/accuracy", 0.965)}
QUALITY: dict[str, dict[str, Any]] = {"adult": {}, "digits": {}}
"""What these pipelines train with besides `bounded`."""


class Counted(Timed):
    """Counts this worker's microbatches, and keeps the points' staleness."""

    def __init__(self) -> None:
        super().__init__()
        self.microbatches = 0
        self.staleness: list[float] = []

    def step(self, number: int) -> None:
        self.microbatches += 1

    def log(self, step: int, metrics: dict[str, float]) -> None:
        super().log(step, metrics)
        if "servers/staleness" in metrics:
            self.staleness.append(metrics["servers/staleness"])


@ray.remote(num_cpus=0)
def work(rank: int, folder: str, config: Config, group: str, actors: list[ActorHandle]) -> tuple[float, float, int]:
    """One worker. Returns the rate in rows/s, the mean staleness, and the number of microbatches that this worker computed."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    context = WorkerContext(rank, len(SHARES))
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", world_size=context.world_size, rank=rank)
    version = open_version(config.dataset.path)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    assert isinstance(strategy, ParameterServerStrategy)
    strategy.connect(actors)
    hooks, checkpoints = Counted(), Checkpoints(RunDirectory(config.train.storage), context, 1)
    Loop(config, version, task, strategy, checkpoints, hooks).run()
    dist.destroy_process_group()
    rate = hooks.rows_per_second() if rank == 0 else 0.0
    return rate, sum(hooks.staleness) / max(1, len(hooks.staleness)), hooks.microbatches


def measure_mode(home: Path, case: Case, name: str, steps: int, groups: list[Path]) -> Row:
    """A training in one mode."""
    folder = home / name.replace(" ", "-")
    folder.mkdir()
    config = case_config(case, home)
    train = {
        "shards": SHARDS,
        "global_batch": GLOBAL_BATCH,
        "workers": len(SHARES),
        "max_steps": steps,
        "strategy": {"kind": "parameter_server", "servers": SERVERS, **MODES[name]},
        "cache_bytes": 2**30,
        "storage": str(folder / "runs"),
    }
    config = config.model_copy(update={"train": type(config.train).model_validate({**config.train.model_dump(), **train})})
    with ParameterServerStrategy.actors(config.train) as actors:
        answers = ray.get([work.remote(rank, str(folder), config, str(group), actors) for rank, group in enumerate(groups)])
    rate, staleness, _ = answers[0]
    slow = answers[-1][2] / sum(computed for _, _, computed in answers)
    return {"mode": name, "rows/s": round(rate), "mean staleness": staleness, "share of the slow worker": slow}


def throughput(home: Path, small: bool) -> list[Row]:
    case = replace(CASES[MODEL], rows=20_000 if small else 100_000, warm_up=0)
    config = case_config(case, home)
    write_version(case, config)
    with ExitStack() as stack:
        groups = [stack.enter_context(quota(share, f"worker-{rank}")) for rank, share in enumerate(SHARES)]
        stack.enter_context(cluster(config.train))  # a group can be removed once Ray's processes have ended
        rows = [measure_mode(home, case, name, 10 if small else steps, groups) for name, steps in zip(MODES, (50, 120, 120), strict=True)]
    for row in rows:
        row["of sync"] = float(str(row["rows/s"])) / float(str(rows[0]["rows/s"]))
    return rows


def quality(home: Path) -> list[Row]:
    rows: list[Row] = []
    for name, (metric, target) in TARGETS.items():
        overrides = {
            "train.strategy": {"kind": "parameter_server", "servers": SERVERS, **BOUNDED},
            "dataset.path": str(home / name),
            "train.storage": str(home / "runs"),
            "tracking.uri": f"sqlite:///{home}/mlflow.db",
        }
        config = api.read_config(f"conf/{name}.yaml", {**overrides, **QUALITY[name]})
        api.prepare(config)
        rows.append({"pipeline": name, "metric": metric, "result": api.train(config).metrics[metric], "asked": target})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few steps, to test that it runs")
    parser.add_argument("--quality", action="store_true", help="train adult and digits too")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    tables: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="async-", dir="/tmp") as text:
        shares = ", ".join(map(str, SHARES))
        rates = throughput(Path(text), arguments.small)
        tables[f"four workers with {shares} of a core: {MODEL}, {SHARDS} shards, {GLOBAL_BATCH} rows a step, {SERVERS} servers"] = rates
        results = quality(Path(text)) if arguments.quality else []
        tables |= {"bounded, staleness 4, two workers": results} if results else {}
    for title, rows in tables.items():
        show(title, rows)
    print(save("asynchronous", tables, package_versions("torch", "ray"), arguments.results))
    missed = [row for row in results if float(str(row["result"])) < float(str(row["asked"]))]
    sys.exit(not arguments.small and (float(str(rates[-1]["of sync"])) < WANTED or bool(missed)))


if __name__ == "__main__":
    main()

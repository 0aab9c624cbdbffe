"""Compares validation losses after equal rows, with and without compression: two workers of this machine on Shakespeare and MNIST.
Each way is trained with several seeds; the standard error of its mean shows what chance alone changes.

    LOCKSTEP_RAW=FOLDER python -m benchmarks.network.quality [--steps 150] [--seeds 3] [--confs shakespeare mnist]
                                                         [--ways ddp local_sgd] [--results FOLDER]

The datasets are made by Spark from the files that conf/shakespeare.yaml and conf/mnist.yaml name.
"""

import argparse
import json
import os
import subprocess
import tempfile
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config import load
from pipelines.data.versions.versions import open_version
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

LOCAL = {"replicas": 2, "inner_steps": 16}
HIGHER_RATE = "local_sgd, lr x 1.41"
ADAM = {"shakespeare": {"train.optimizer": "adamw", "train.lr": 4e-3}}
"""What the figures were measured with, in place of muon."""
WAYS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp, bf16": {"train.strategy.compression": "bf16"},
    "ddp, powersgd, rank 4": {"train.strategy.compression": {"kind": "powersgd", "rank": 4}},
    "ddp, powersgd, rank 16": {"train.strategy.compression": {"kind": "powersgd", "rank": 16}},
    "ddp, topk, 1 %": {"train.strategy.compression": {"kind": "topk", "share": 0.01}},
    "ddp, topk, 10 %": {"train.strategy.compression": {"kind": "topk", "share": 0.1}},
    "local_sgd": {"train.strategy": {"kind": "local_sgd", **LOCAL}},
    HIGHER_RATE: {"train.strategy": {"kind": "local_sgd", **LOCAL}},
    "local_sgd, nesterov": {"train.strategy": {"kind": "local_sgd", **LOCAL, "outer": "nesterov"}},
    "local_sgd, int8": {"train.strategy": {"kind": "local_sgd", **LOCAL, "deltas": "int8"}},
}


class Losses(Hooks):
    """Keeps the last value of a metric."""

    def __init__(self, name: str) -> None:
        self._name, self.last = name, float("nan")

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self.last = metrics.get(self._name, self.last)


def work(rank: int, conf: str, overrides: dict[str, Any], home: str, ways: list[str], seeds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{home}/rendezvous", world_size=2, rank=rank)
    losses_by_way: dict[str, list[float]] = {name: [] for name in ways}
    for seed, name in product(range(seeds), ways):
        rate = load(conf, overrides).train.lr * (LOCAL["replicas"] ** 0.5 if name == HIGHER_RATE else 1)
        config, context = load(conf, {**overrides, **WAYS[name], "train.seed": seed, "train.lr": rate}), WorkerContext(rank, 2)
        version = open_version(config.dataset.path, config.data_identity)
        task = build_task(config.task, version.manifest)
        losses, checkpoints = Losses(f"validation/{task.minimised}"), Checkpoints(RunDirectory(f"{home}/{name}-{seed}"), context, 1)
        Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, losses).run()
        losses_by_way[name].append(losses.last)
        if rank == 0:
            print(config.name, name, seed, losses.last, flush=True)
            Path(home, "found").write_text(json.dumps(losses_by_way))
    dist.destroy_process_group()


def table(name: str, home: Path, steps: int, ways: list[str], seeds: int) -> list[Row]:
    conf, data, tracking = f"conf/{name}.yaml", f"{home}/data", f"sqlite:///{home}/mlflow.db"
    home.mkdir()
    etl_command = ["spark-submit", "--master", "local[2]", "jobs/etl.py", conf, "--dataset.path", data, "--tracking.uri", tracking]
    subprocess.run(etl_command, check=True, stdout=subprocess.DEVNULL)
    overrides = {"dataset.path": data, "tracking.uri": tracking, "train.max_steps": steps, **ADAM.get(name, {})}
    mp.spawn(work, (conf, overrides, str(home), ways, seeds), nprocs=2)
    losses_by_way = json.loads((home / "found").read_text())
    return [make_row(way, losses, losses_by_way["ddp"]) for way, losses in losses_by_way.items()]


def make_row(way: str, losses: list[float], plain: list[float]) -> Row:
    """The means of losses by seed, beside those of plain ddp."""
    mean_loss, error = mean(losses), stdev(losses) / len(losses) ** 0.5 if len(losses) > 1 else None
    return {"way": way, "seeds": len(losses), "validation loss": mean_loss, "standard error": error, "/ ddp": mean_loss / mean(plain)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3, help="of each way; at least 1")
    parser.add_argument("--confs", nargs="+", default=["shakespeare", "mnist"])
    parser.add_argument("--ways", nargs="+", metavar="WAY", choices=WAYS, default=list(WAYS), help="`ddp` has to be among them")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.seeds < 1:
        parser.error(f"--seeds is {arguments.seeds}, but has to be at least 1")
    if "ddp" not in arguments.ways:
        parser.error("--ways has to contain ddp, with which the others are compared")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="quality-") as text:
        tables = {
            f"{name}, {arguments.steps} steps": table(name, Path(text) / name, arguments.steps, arguments.ways, arguments.seeds)
            for name in arguments.confs
        }
    for title, rows in tables.items():
        show(title, rows)
    print(save(f"compression-quality-{arguments.steps}-steps", tables, package_versions("torch"), arguments.results))


if __name__ == "__main__":
    main()

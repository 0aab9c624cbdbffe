"""Compares strategy `boosting` with LightGBM's own distributed training, on two processes: rows/s by turns, and how far the trees depend
on the number of workers.

    python -m benchmarks.train.trees [--rows 1000000] [--turns 5] [--small] [--results FOLDER]

A turn is 25 rounds on the same rows, in memory, with the same settings. Each process has one thread, and the environment of a worker.
"""

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.exact.matrix import join
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.applications.trees.boosting import Boosting, TreeRounds
from pipelines.applications.trees.settings import TreesSettings
from pipelines.applications.trees.task import Trees
from pipelines.config.train.train import Train
from pipelines.data.loader import Order
from pipelines.data.versions.plain import commit_arrays, identity_encoders
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version
from pipelines.launch.cluster import WORKERS_ENVIRONMENT
from pipelines.runtime.weights import model_digest
from pipelines.tasks.data import Data
from pipelines.train.step_statistics import Flags
from pipelines.train.workers import WorkerContext

FEATURES, ROUNDS, SHARDS, RATE, SHARE = 20, 25, 6, 0.05, 0.6
COLUMNS = (
    *(TensorColumn(name=f"x{number}", dtype="float32") for number in range(FEATURES)),
    TensorColumn(name="label", dtype="uint8", role="target", cardinality=2),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few rows, one turn")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows, turns = (4_000, 1) if options.small else (options.rows, options.turns)
    with tempfile.TemporaryDirectory() as folder:
        version = write_rows(Path(folder) / "data", rows)
        os.environ |= WORKERS_ENVIRONMENT
        for workers in (1, 2, 3):
            mp.spawn(measure, (workers, folder, version, turns if workers == 2 else 0), workers)
        results = {workers: json.loads(Path(f"{folder}/{workers}.json").read_text()) for workers in (1, 2, 3)}
    rates = {name: [rows * ROUNDS / seconds for seconds in every] for name, every in results[2]["seconds"].items()}
    medians = {name: statistics.median(every) for name, every in rates.items()}
    table: list[Row] = [
        {"training": name, "rows/s": round(median), "of LightGBM's own": round(median / medians["LightGBM"], 3)}
        for name, median in medians.items()
    ]
    digests: list[Row] = [{"workers": workers, "digest of the trees": result["digest"][:12]} for workers, result in results.items()]
    show(f"{rows:,} rows of {FEATURES} features on two workers", table)
    show(f"trees after {ROUNDS} rounds", digests)
    print(save("trees", {"rows": table, "digests": digests}, package_versions("lightgbm", "torch"), options.results))


def write_rows(folder: Path, rows: int) -> Version:
    random = np.random.default_rng(0)
    values = {f"x{number}": random.standard_normal(rows).astype(np.float32) for number in range(FEATURES)}
    values["label"] = (values["x0"] * values["x1"] + values["x2"] / 2 + random.standard_normal(rows) > 0).astype(np.uint8)
    return commit_arrays(str(folder), {"train": [values]}, identity_encoders(COLUMNS), 2**22)


def measure(rank: int, workers: int, folder: str, version: Version, turns: int) -> None:
    """Grow trees by the strategy, and in turns by LightGBM alone; rank 0 writes seconds and digest to a file."""
    context = join(rank, workers, f"file://{folder}/meeting-{workers}")
    torch.set_num_threads(1)
    strategy, grow = prepare_strategy(context, version)
    grow()
    digest = model_digest(strategy.model.weights())
    seconds: dict[str, list[float]] = {"LightGBM": [], "Lockstep": []}
    for _ in range(turns):
        seconds["LightGBM"].append(measure_seconds(prepare_lightgbm(strategy, version, context)))
        seconds["Lockstep"].append(measure_seconds(grow))
    strategy.close()
    if rank == 0:
        Path(f"{folder}/{workers}.json").write_text(json.dumps({"seconds": seconds, "digest": digest}))
    dist.destroy_process_group()


def measure_seconds(grow: Callable[[], object]) -> float:
    dist.barrier()
    start = time.perf_counter()
    grow()
    return time.perf_counter() - start


def prepare_strategy(context: WorkerContext, version: Version) -> tuple[Boosting, Callable[[], None]]:
    """The strategy with its rows, and a function that takes the next rounds of an epoch."""
    settings = Train.model_validate({"strategy": {"kind": "boosting", "rounds_per_epoch": ROUNDS}, "shards": SHARDS, "epochs": 100,
                                     "global_batch": 6 * 64})  # fmt: skip
    task = Trees(TreesSettings(feature_share=SHARE), Data(COLUMNS))
    strategy = Boosting(settings, task, task.model, context)
    strategy.begin(SimpleNamespace(loader=worker_loader(strategy, version), state=SimpleNamespace(step=0)))  # type: ignore[arg-type]
    numbers = iter(range(ROUNDS * 100))

    def grow() -> None:
        for _ in range(ROUNDS):
            strategy.step(None, next(numbers), RATE, Flags(), compute_grad_norm=False)

    return strategy, grow


def worker_loader(strategy: Boosting, version: Version) -> TreeRounds:
    return TreeRounds(version, Order(SHARDS, 6 * 64), strategy.mesh.worker_shards(SHARDS), ROUNDS, 1)


def prepare_lightgbm(strategy: Boosting, version: Version, context: WorkerContext) -> Callable[[], object]:
    """LightGBM's own training of the same rows, with its own loss, on as many machines."""
    parts = [(strategy.model.inputs(rows), rows["label"].clone()) for rows in worker_loader(strategy, version).read_rows()]
    inputs, label = (torch.cat(values).numpy() for values in zip(*parts, strict=True))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    ports: list[Any] = [0] * context.world_size
    dist.all_gather_object(ports, port)
    parameters = {
        "objective": "binary",
        "learning_rate": RATE,
        "num_leaves": 31,
        "feature_fraction": SHARE,
        "num_threads": 1,
        "verbosity": -1,
        "tree_learner": "data",
        "pre_partition": True,
        "num_machines": len(ports),
        "local_listen_port": port,
        "machines": ",".join(f"127.0.0.1:{port}" for port in ports),
    }
    data = lightgbm.Dataset(inputs, label, params=parameters)
    booster = lightgbm.Booster(parameters, data)

    def grow() -> None:
        for _ in range(ROUNDS):
            booster.update()
        booster.free_network()

    return grow


if __name__ == "__main__":
    main()

"""Measures strategy `sharded` on Gloo: a worker's peak memory and its speed, for GPTs, beside `ddp`.

    python -m benchmarks.train.sharded [--small] [--results FOLDER]

Memory is resident bytes above those of a process that has trained a tiny model, and so has loaded the same code: the peak, and what
stays after a step. `ddp` is measured on one worker, which has no buffers for messages; every worker has the same rows in all lines of
a table. The speed is that of two workers with one thread each, by turns.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.report import RESULTS, Row, save, show, versions_of
from pipelines.collectives.context import WorkerContext
from pipelines.config.task import Language as Settings
from pipelines.config.train import Train
from pipelines.dataset.schema import TensorColumn
from pipelines.parallel.step import Flags
from pipelines.parallel.strategies import strategy_of
from pipelines.parallel.strategy import Strategy
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.language import Language

MB = 2**20


@dataclass(frozen=True)
class Case:
    """A GPT and the rows of a worker in a step."""

    layers: int
    width: int
    vocabulary: int
    context: int
    rows: int
    steps: int = 3


LARGE = Case(layers=12, width=768, vocabulary=10_000, context=64, rows=2)
MIDDLE = Case(layers=8, width=448, vocabulary=6_400, context=128, rows=8)
LONG = Case(layers=8, width=256, vocabulary=256, context=2_048, rows=1)
SMALL = Case(layers=2, width=64, vocabulary=256, context=32, rows=2)


def task_of(case: Case) -> Language:
    column = TensorColumn(name="windows", dtype="int32", shape=(case.context + 1,), cardinality=case.vocabulary)
    settings = {"kind": "language", "layers": case.layers, "heads": case.width // 64, "width": case.width, "sample_tokens": 0}
    return Language(Settings.model_validate(settings), Data((column,), tokens=tuple(b"x" for _ in range(case.vocabulary))))


def rows_of(case: Case, rank: int) -> Batch:
    generator = torch.Generator().manual_seed(rank)
    shape = (case.rows, case.context + 1)
    return {"windows": torch.randint(case.vocabulary, shape, generator=generator, dtype=torch.int32)}


def resident(peak: bool) -> int:
    """Bytes of this process in memory, now or at most."""
    name = "VmHWM" if peak else "VmRSS"
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def worker(rank: int, world_size: int, rendezvous: str, case: Case, train: dict[str, Any]) -> None:
    """One worker: it prints its memory and the seconds of each step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{rendezvous}", timedelta(seconds=300), world_size, rank)
    stepped(built_for(SMALL, rank, world_size, train), rows_of(SMALL, rank), 0)
    gc.collect()
    forget_peak()
    empty = resident(peak=False)
    strategy = built_for(case, rank, world_size, train)
    built, batch, seconds = resident(peak=True) - empty, rows_of(case, rank), []
    stepped(strategy, batch, 0)  # which makes the optimizer's state
    forget_peak()
    kept = resident(peak=False) - empty
    for number in range(1, case.steps):
        started = time.perf_counter()
        stepped(strategy, batch, number)
        seconds.append(time.perf_counter() - started)
    parameters = sum(parameter.numel() for parameter in strategy.model.parameters())
    found = {"built": built, "kept": kept, "peak": resident(peak=True) - empty, "seconds": median(seconds), "parameters": parameters}
    print(json.dumps(found), flush=True)
    dist.barrier()
    os._exit(0)


def built_for(case: Case, rank: int, workers: int, train: dict[str, Any]) -> Strategy:
    settings = Train.model_validate({"global_batch": case.rows * workers, "shards": workers, "workers": workers, **train})
    return strategy_of(settings, task_of(case), WorkerContext(rank, workers))


def stepped(strategy: Strategy, batch: Batch, number: int) -> None:
    strategy.step(batch, number, 1e-3, Flags(), measured=False)


def measured(workers: int, case: Case, train: dict[str, Any]) -> dict[str, float]:
    """The largest of all workers' numbers."""
    with tempfile.TemporaryDirectory(prefix="sharded-") as folder:
        common = [str(workers), f"{folder}/rendezvous", json.dumps(asdict(case)), json.dumps(train)]
        command = [sys.executable, "-m", "benchmarks.train.sharded", "--worker"]
        # glibc keeps freed memory below this size for itself.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
        processes = [
            subprocess.Popen([*command, str(rank), *common], stdout=subprocess.PIPE, text=True, env=environment) for rank in range(workers)
        ]
        answers = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"{train} on {workers} workers failed")
    found = [json.loads(answer.splitlines()[-1]) for answer in answers]
    return {key: max(each[key] for each in found) for key in found[0]}


WAYS: dict[str, tuple[int, dict[str, Any]]] = {
    "ddp": (1, {}),
    "shard 2": (2, {"strategy": "sharded"}),
    "shard 4": (4, {"strategy": "sharded"}),
    "2 replicas, shard 2": (4, {"strategy": "sharded", "parallel": {"replicate": 2}}),
}


def memory(case: Case) -> list[Row]:
    rows: list[Row] = []
    by_ddp = 0.0
    for name, (workers, train) in WAYS.items():
        found = measured(workers, case, train)
        peak = max(found["built"], found["peak"])
        by_ddp = by_ddp or peak
        sizes = {"building, MB": found["built"], "between steps, MB": found["kept"], "peak of a step, MB": found["peak"]}
        in_mb = {name: size / MB for name, size in sizes.items()}
        rows.append({"way": name, "M parameters": found["parameters"] / 1e6, **in_mb, "peak of ddp's": peak / by_ddp})
        print(rows[-1], flush=True)
    return rows


def activations(case: Case) -> list[Row]:
    rows: list[Row] = []
    without = 0.0
    for kind in ("none", "selective", "full"):
        found = measured(2, case, {"strategy": "sharded", "parallel": {"activation_checkpointing": kind}})
        size = found["peak"] - found["kept"]
        without = without or size
        rows.append(
            {"activation_checkpointing": kind, "in a step, MB": size / MB, "of none's": size / without, "step, s": found["seconds"]}
        )
        print(rows[-1], flush=True)
    return rows


def speed(case: Case, turns: int) -> list[Row]:
    seconds: dict[str, list[float]] = {"ddp": [], "sharded": []}
    for _ in range(turns):
        for strategy, found in seconds.items():
            found.append(measured(2, case, {"strategy": strategy})["seconds"])
    by_ddp = median(seconds["ddp"])
    return [
        {"strategy": name, "step, s": median(found), "rows/s": 2 * case.rows / median(found), "x ddp": by_ddp / median(found)}
        for name, found in seconds.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small models, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        rank, workers, rendezvous, case, train = arguments.worker
        worker(int(rank), int(workers), rendezvous, Case(**json.loads(case)), json.loads(train))
    large, middle, long = (SMALL, SMALL, replace(SMALL, context=256)) if arguments.small else (LARGE, MIDDLE, LONG)
    tables = {
        f"resident bytes of a worker, {large}": memory(large),
        f"two workers, {long}": activations(long),
        f"two workers of one thread, {middle}": speed(middle, 1 if arguments.small else 3),
    }
    for title, rows in tables.items():
        show(title, rows)
    print(save("sharded", tables, versions_of("torch"), arguments.results))


if __name__ == "__main__":
    main()

"""A worker that trains a GPT for some steps, on Gloo, and prints its resident memory and the seconds of a step.

`measure_workers` starts a group of them. One of them is `python -m benchmarks.train.spread_worker RANK WORKERS RENDEZVOUS CASE TRAIN`, the
last two as JSON.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from pipelines.applications.language.settings import LanguageSettings as Settings
from pipelines.applications.language.task import Language
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Batch, Data
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext


@dataclass(frozen=True)
class Case:
    """A GPT and the rows of a worker in a step."""

    layers: int
    width: int
    vocabulary: int
    context: int
    rows: int
    steps: int = 3


TINY = Case(layers=2, width=128, vocabulary=256, context=32, rows=2)


def create_task(case: Case) -> Language:
    column = TensorColumn(name="windows", dtype="int32", shape=(case.context + 1,), cardinality=case.vocabulary)
    settings = {"kind": "language", "layers": case.layers, "heads": case.width // 64, "width": case.width, "sample_tokens": 0}
    return Language(Settings.model_validate(settings), Data((column,), tokens=tuple(b"x" for _ in range(case.vocabulary))))


def random_rows(case: Case, replica: int) -> Batch:
    generator = torch.Generator().manual_seed(replica)
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
    tiny = create_case_strategy(TINY, rank, world_size, train)
    take_step(tiny, random_rows(TINY, tiny.mesh.replica), 0)
    del tiny
    gc.collect()
    forget_peak()
    empty = resident(peak=False)
    strategy = create_case_strategy(case, rank, world_size, train)
    built, batch, seconds = resident(peak=True) - empty, random_rows(case, strategy.mesh.replica), []
    take_step(strategy, batch, 0)  # which makes the optimizer's state
    forget_peak()
    resident_bytes = resident(peak=False) - empty
    for number in range(1, case.steps):
        started = time.perf_counter()
        take_step(strategy, batch, number)
        seconds.append(time.perf_counter() - started)
    parameters = sum(parameter.numel() for parameter in strategy.model.parameters())
    numbers = {
        "built": built,
        "kept": resident_bytes,
        "peak": resident(peak=True) - empty,
        "seconds": median(seconds),
        "parameters": parameters,
    }
    print(json.dumps(numbers), flush=True)
    dist.barrier()
    os._exit(0)


def create_case_strategy(case: Case, rank: int, workers: int, train: dict[str, Any]) -> Strategy:
    replicas = count_readers(workers, train)
    settings = Train.model_validate({"global_batch": case.rows * replicas, "shards": replicas, "workers": workers, **train})
    return create_strategy(settings, create_task(case), WorkerContext(rank, workers))


def count_readers(workers: int, train: dict[str, Any]) -> int:
    """How many workers read different rows."""
    return Train.model_validate({"shards": 2**20, "global_batch": 2**20, **train, "workers": workers}).max_readers


def take_step(strategy: Strategy, batch: Batch, number: int) -> None:
    strategy.step(batch, number, 1e-3, Flags(), compute_grad_norm=False)


def measure_workers(workers: int, case: Case, train: dict[str, Any]) -> dict[str, float]:
    """The largest of all workers' numbers."""
    with tempfile.TemporaryDirectory(prefix="sharded-") as folder:
        common = [str(workers), f"{folder}/rendezvous", json.dumps(asdict(case)), json.dumps(train)]
        command = [sys.executable, "-m", "benchmarks.train.spread_worker"]
        # glibc keeps freed memory below this size for itself.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
        processes = [
            subprocess.Popen([*command, str(rank), *common], stdout=subprocess.PIPE, text=True, env=environment) for rank in range(workers)
        ]
        answers = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"{train} on {workers} workers failed")
    results = [json.loads(answer.splitlines()[-1]) for answer in answers]
    return {key: max(result[key] for result in results) for key in results[0]}


if __name__ == "__main__":
    rank, workers, rendezvous, case, train = sys.argv[1:]
    worker(int(rank), int(workers), rendezvous, Case(**json.loads(case)), json.loads(train))

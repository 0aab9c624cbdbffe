"""Measures what strategy `exact` costs compared with `ddp`, and checks that its models do not depend on the number of workers.

    python -m benchmarks.exact.against_ddp [--tables cost differences matrix] [--small] [--home FOLDER] [--results FOLDER]

1. `cost`: the time of a step, without loading data, which is the same for both. The order alternates between rounds.
2. `differences`: how far models trained on several workers are from the one trained on one worker, by strategy.
3. `matrix`: the digests of `exact` by number of workers, and of a run that is killed and resized. Exits with 1 if they differ.

`--home` is the folder of the datasets digits and adult, which are made unless they exist.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from benchmarks.exact.matrix import Case, create_datasets, fit_all, join, matrix
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines.config.tasks.task import TabularSettings, VisionSettings
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.runtime.weights import from_bytes
from pipelines.tasks.base import Data, Task
from pipelines.tasks.tabular import Tabular
from pipelines.tasks.vision import Vision
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import strategy_class
from pipelines.train.workers import Mesh, WorkerContext

LABEL = TensorColumn(name="label", dtype="int64", role="target", cardinality=10)
NO_FLAGS = Flags()
TABLES = ("cost", "differences", "matrix")


@dataclass(frozen=True)
class Cost:
    model: str
    workers: int
    shards: int
    rows: int
    """Rows of the global batch."""
    steps: int
    """Steps that are timed in a round, after two warm-up steps."""
    hidden: tuple[int, ...] = ()
    """Hidden layers of a perceptron; empty for mnist's network."""


COSTS = (
    Cost("MLP, 100 M parameters", 2, 2, 512, 4, (5_760,) * 4),
    Cost("mnist, small network", 2, 8, 128, 60),
    Cost("mnist, small network", 2, 2, 128, 60),
    Cost("mnist, small network", 1, 8, 128, 40),
    Cost("mnist, small network", 2, 8, 512, 20),
    Cost("MLP 4 x 1,024", 2, 2, 512, 20, (1_024,) * 4),
    Cost("MLP 4 x 1,024", 2, 8, 512, 20, (1_024,) * 4),
)
SMALL_COSTS = (replace(COSTS[1], rows=32, steps=2), replace(COSTS[5], rows=32, steps=2, hidden=(64,)))


def create_task(cost: Cost) -> Task:
    classes = tuple("0123456789")
    if cost.hidden:
        column = TensorColumn(name="x", dtype="float32", shape=(100,))
        return Tabular(TabularSettings(hidden=cost.hidden), Data((column, LABEL), classes))
    column = TensorColumn(name="x", dtype="uint8", shape=(1, 28, 28))
    return Vision(VisionSettings(network="small", dropout=0.4), Data((column, LABEL), classes))


def microbatches(cost: Cost, context: WorkerContext) -> list[dict[str, Tensor]]:
    """Microbatches of this worker's shards."""
    size, generator = cost.rows // cost.shards, torch.Generator().manual_seed(context.rank)
    batches = []
    for _ in Mesh(context).worker_shards(cost.shards):
        x = torch.randn(size, 100, generator=generator) if cost.hidden else torch.randint(256, (size, 1, 28, 28), generator=generator)
        label = torch.randint(10, (size,), generator=generator)
        batches.append({"x": (x if cost.hidden else x.byte()).to(context.device), "label": label.to(context.device)})
    return batches


def measure(rank: int, workers: int, folder: str, costs: list[Cost], rounds: int) -> None:
    """Measure seconds per step of both strategies, in every round of every cost; rank 0 writes them to a file."""
    context = join(rank, workers, f"file://{folder}/meeting-{workers}")
    measurements = []
    for cost in costs:
        shards = microbatches(cost, context)
        worker_batch = {name: torch.cat([rows[name] for rows in shards]) for name in ("x", "label")}
        batches: dict[str, Any] = {"ddp": worker_batch, "exact": shards}
        seconds: dict[str, list[float]] = {"ddp": [], "exact": []}
        for number in range(rounds):
            for name in list(seconds)[:: 1 if number % 2 else -1]:
                step_seconds, parameters = measure_steps(cost, name, batches[name], context)
                seconds[name].append(step_seconds)
        measurements.append({"seconds": seconds, "parameters": parameters})
    if rank == 0:
        Path(f"{folder}/cost-{workers}.json").write_text(json.dumps(measurements))
    dist.destroy_process_group()


def measure_steps(cost: Cost, name: str, batch: Any, context: WorkerContext) -> tuple[float, int]:
    """Seconds per step of a strategy, with no other one in memory, and the number of the model's parameters."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(False)
    settings = Train.model_validate({"strategy": name, "shards": cost.shards, "global_batch": cost.rows, "optimizer": "adam"})
    task = create_task(cost)
    strategy = strategy_class(settings)(settings, task, task.model, context)
    for step in range(2):
        strategy.step(batch, step, 1e-3, NO_FLAGS, compute_grad_norm=False)
    wait_for_device(context)
    started = time.perf_counter()
    for step in range(2, cost.steps + 2):
        strategy.step(batch, step, 1e-3, NO_FLAGS, compute_grad_norm=False)
    wait_for_device(context)
    seconds = (time.perf_counter() - started) / cost.steps
    return seconds, sum(parameter.numel() for parameter in strategy.model.parameters())


def wait_for_device(context: WorkerContext) -> None:
    if context.device.type == "cuda":
        torch.cuda.synchronize(context.device)
    dist.barrier()


def cost_rows(costs: tuple[Cost, ...], rounds: int, folder: Path) -> list[Row]:
    answers: dict[Cost, dict[str, Any]] = {}
    for workers in sorted({cost.workers for cost in costs}):
        chosen = [cost for cost in costs if cost.workers == workers]
        mp.spawn(measure, (workers, str(folder), chosen, rounds), nprocs=workers)
        answers.update(zip(chosen, json.loads((folder / f"cost-{workers}.json").read_text()), strict=True))
    return [_cost_row(cost, **answers[cost]) for cost in costs]


def _cost_row(cost: Cost, seconds: dict[str, list[float]], parameters: int) -> Row:
    return {
        "model": cost.model,
        "parameters": parameters,
        "workers": cost.workers,
        "shards": cost.shards,
        "rows": cost.rows,
        "ddp, ms": 1_000 * statistics.median(seconds["ddp"]),
        "exact, ms": 1_000 * statistics.median(seconds["exact"]),
        "exact / ddp": statistics.median(exact / ddp for exact, ddp in zip(seconds["exact"], seconds["ddp"], strict=True)),
    }


def difference_rows(home: Path, folder: Path, steps: int, workers: tuple[int, ...]) -> list[Row]:
    """How far models trained on several workers are from the one trained on one worker after `steps` steps, by strategy."""
    create_datasets(home)
    cases = {
        "digits": Case("digits"),
        "digits, without dropout": Case("digits", {"task.dropout": 0}),
        "adult": Case("adult"),
        "adult, without dropout": Case("adult", {"task.dropout": 0}),
    }
    named = [(name, strategy, number) for name in cases for strategy in ("ddp", "exact") for number in workers]
    jobs = [(cases[name].config(home, strategy=strategy, epochs=1_000, max_steps=steps), number) for name, strategy, number in named]
    models = {key: from_bytes(content) for key, (_, content, _) in zip(named, fit_all(jobs, folder), strict=True)}
    rows: list[Row] = []
    for name, strategy, number in named:
        if number != 1:
            single, several = models[name, strategy, 1], models[name, strategy, number]
            first, second = (torch.cat([weights[key].flatten().double() for key in sorted(single)]) for weights in (single, several))
            far = second - first
            rows.append(
                {
                    "model": name,
                    "strategy": strategy,
                    "workers": number,
                    "largest difference": float(far.abs().max()),
                    "norm of the difference / norm": float(far.norm() / first.norm()),
                    "weights that differ": float((far != 0).double().mean()),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=TABLES)
    parser.add_argument("--small", action="store_true", help="few steps, to test that it runs")
    parser.add_argument("--steps", type=int, default=40, help="of every run")
    parser.add_argument("--rounds", type=int, default=3, help="of every timing")
    parser.add_argument("--seed", type=int, default=None, help="of the steps at which workers are killed")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    same = True
    with tempfile.TemporaryDirectory(prefix="exact-", dir="/tmp") as temporary:
        for table in arguments.tables:
            title, rows = make_table(table, arguments, Path(temporary))
            show(title, rows)
            print(save(f"exact-{table}", {title: rows}, package_versions("torch", "pyarrow"), arguments.results))
            same = same and all(row.get("identical") != "NO" for row in rows)
    sys.exit(not same)


def make_table(table: str, arguments: argparse.Namespace, folder: Path) -> tuple[str, list[Row]]:
    """A table's title and rows."""
    home, small = (arguments.home or folder).absolute(), arguments.small
    if table == "cost":
        rounds = 1 if small else arguments.rounds
        return f"seconds of a step, medians of {rounds} rounds", cost_rows(SMALL_COSTS if small else COSTS, rounds, folder)
    if table == "differences":
        workers, steps = ((1, 2), 4) if small else ((1, 2, 4, 8), arguments.steps)
        return f"models beside that of one worker, after {steps} steps", difference_rows(home, folder / table, steps, workers)
    seed = time.time_ns() % 10_000 if arguments.seed is None else arguments.seed
    rows = matrix(home, folder / table, 10 if small else arguments.steps, seed, small)
    return f"first digits of the model's digest by workers, kills of seed {seed}", rows


if __name__ == "__main__":
    main()

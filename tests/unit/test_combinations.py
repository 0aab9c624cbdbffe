"""Settings of `train` together: every kind of task in every precision, under every strategy, takes steps and is evaluated."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from math import isfinite
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch
from groups import run_group
from task_cases import CASES, PRECISIONS, ROWS, create_task, random_batch, step_losses, worker_batch

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.tasks.base import Task
from pipelines.train.initial_model import meta_model
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

STRATEGIES = ("ddp", "exact", "local_sgd")


def all_combinations() -> Iterator[object]:
    """Task, strategy and precision. Those without `full` are a Latin square: every two of the settings meet in one of them."""
    for (row, name), (column, strategy), (number, precision) in product(*map(enumerate, (CASES, STRATEGIES, PRECISIONS))):
        is_in_square = (row + column + number) % len(PRECISIONS) == 0
        yield pytest.param(name, strategy, precision, marks=[] if is_in_square else [pytest.mark.full])


@pytest.mark.parametrize(("name", "strategy", "precision"), all_combinations())
def test_every_task_trains_in_every_precision(name: str, strategy: str, precision: str) -> None:
    task = create_task(name)
    settings = Train.model_validate(
        {
            "precision": precision,
            "strategy": {"kind": "local_sgd", "replicas": 2, "inner_steps": 5} if strategy == "local_sgd" else strategy,
            "global_batch": ROWS,
            "shards": 2,
            "grad_accum_steps": 2,
            "lr": 0.01,
            "clip_norm": 1.0,
        }
    )
    trained, batch = create_strategy(settings, task, WorkerContext()), random_batch(task, ROWS)
    results = (trained.step(worker_batch(strategy, batch), number, 0.01, Flags()) for number in range(12))
    losses = [float(result.loss_sum / result.weight) for result in results]
    assert all(map(isfinite, losses))
    assert losses[-1] < losses[0]
    metrics = task.metrics()
    output = trained.predict(batch)
    task.update(metrics, output, batch)
    assert isfinite(metrics.compute()[task.monitor[0]])
    assert {len(values) for values in task.predict(output).values()} == {ROWS}


def losses(context: WorkerContext, task: Task, strategy: str, precision: str) -> list[float]:
    settings = {"strategy": strategy, "precision": precision, "global_batch": ROWS, "shards": 2, "grad_accum_steps": 2, "clip_norm": 1.0}
    trained = create_strategy(Train.model_validate(settings), task, context)
    batch = {name: values.tensor_split(context.world_size)[context.rank] for name, values in random_batch(task, ROWS).items()}
    results = [trained.step(batch, number, 0.01, Flags()) for number in range(4)]
    return [float(result.loss_sum / result.weight) for result in results]


def spread(context: WorkerContext) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """Losses by task and precision, with `ddp` and with `sharded`."""
    cases = [(name, precision) for name in CASES for precision in PRECISIONS]
    return {
        (name, kind): tuple(losses(context, create_task(name), strategy, kind) for strategy in ("ddp", "sharded")) for name, kind in cases
    }  # type: ignore[misc]


@pytest.mark.full
def test_every_task_trains_in_every_precision_when_its_model_is_spread(tmp_path: Path) -> None:
    actual, other = run_group(2, tmp_path / "group", spread)
    assert not isinstance(actual, Exception), actual
    assert actual == other
    for (name, precision), (expected, losses_when_spread) in actual.items():
        assert losses_when_spread == pytest.approx(expected, rel=1e-5 if precision == "fp32" else 0.02), (name, precision)


@pytest.mark.full
@pytest.mark.skipif(not which("g++"), reason="torch compiles with g++: apt-get install g++")
@pytest.mark.parametrize("name", ["tabular of terms and members", "vision", "language", "segmentation"])
def test_a_compiled_step_is_the_plain_one(name: str) -> None:
    """By g++, which takes most of a minute. `tests/gpu` compiles the steps of all tasks for a GPU."""
    plain, compiled = (step_losses(name, WorkerContext(), compile=is_compiled) for is_compiled in (False, True))
    assert compiled == pytest.approx(plain, rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_the_graphs_of_a_step_compute_what_it_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs that a compiler would get, of every task, forwards and backwards, run as they are."""
    run_graph, graphs = torch._dynamo.lookup_backend("aot_eager"), []

    def keep_graph(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return run_graph(graph, inputs)

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=keep_graph))
    plain = step_losses(name, WorkerContext())
    assert not graphs
    assert step_losses(name, WorkerContext(), compile=True) == pytest.approx(plain, rel=1e-4)
    assert graphs


@pytest.mark.parametrize("name", CASES)
def test_every_model_can_be_described_without_memory(name: str) -> None:
    described, real = meta_model(create_task(name)).state_dict(), create_task(name).model().state_dict()
    assert {name: (values.shape, values.dtype) for name, values in described.items()} == {
        name: (values.shape, values.dtype) for name, values in real.items()
    }
    assert all(values.is_meta for values in described.values())


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_a_single_row_has_no_batch_norm(strategy: str) -> None:
    """An epoch's last rows, one for a pass."""
    task = create_task("tabular")
    settings = Train.model_validate({"strategy": strategy, "global_batch": ROWS, "shards": 2, "remainder": "keep"})
    trained, rows = create_strategy(settings, task, WorkerContext()), random_batch(task, 1)
    with pytest.raises(ConfigError, match=r"a batch norm got a single row, which has no variance: .* set train.remainder to drop"):
        trained.step([rows, {name: values[:0] for name, values in rows.items()}] if strategy == "exact" else rows, 0, 0.01, Flags())

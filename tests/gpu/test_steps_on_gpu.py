"""Every kind of task on a GPU: as on the CPU, in every precision, and with the same bits each time under `exact`."""

from math import isfinite
from typing import Any

import pytest
import torch
from task_cases import CASES, PRECISIONS, ROWS, create_task, random_batch, step_losses, worker_batch

from pipelines.config.train.train import Train
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Batch
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext

BASE: dict[str, Any] = {"global_batch": ROWS, "shards": 2, "grad_accum_steps": 2, "lr": 0.01, "clip_norm": 1.0}


def to_device(device: torch.device, batch: Batch) -> Batch:
    return {name: values.to(device) for name, values in batch.items()}


def train(name: str, context: WorkerContext, steps: int = 12, **settings: Any) -> tuple[Strategy, list[float]]:
    """Take steps with the same rows. Returns the strategy and the loss of every step."""
    parsed, task = Train.model_validate({**BASE, **settings}), create_task(name)
    strategy = create_strategy(parsed, task, context)
    batch = worker_batch(parsed.strategy.kind, to_device(context.device, random_batch(task, ROWS)))
    results = (strategy.step(batch, number, 0.01, Flags()) for number in range(steps))
    return strategy, [float(result.loss_sum / result.weight) for result in results]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("strategy", ["ddp", "exact", "local_sgd"])
@pytest.mark.parametrize("name", CASES)
def test_every_task_trains_in_every_precision(name: str, strategy: str, precision: str, context: WorkerContext) -> None:
    settings: Any = {"kind": "local_sgd", "replicas": 2, "inner_steps": 5} if strategy == "local_sgd" else strategy
    trained, losses = train(name, context, strategy=settings, precision=precision)
    assert all(map(isfinite, losses))
    assert losses[-1] < losses[0]
    task = create_task(name)
    batch, metrics = to_device(context.device, random_batch(task, ROWS)), task.metrics()  # which are computed on the CPU
    output = trained.predict(batch).cpu()
    task.update(metrics, output, batch)
    assert isfinite(metrics.compute()[task.monitor[0]])
    assert {len(values) for values in task.predict(output).values()} == {ROWS}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", CASES)
def test_p5_exact_has_the_same_bits_each_time(name: str, precision: str, context: WorkerContext) -> None:
    runs = [train(name, context, strategy="exact", precision=precision) for _ in range(2)]
    assert runs[0][1] == runs[1][1]
    assert model_digest(runs[0][0].model.state_dict()) == model_digest(runs[1][0].model.state_dict())


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_the_host_does_not_wait_for_a_step(name: str, strategy: str, context: WorkerContext) -> None:
    """The GPU would idle meanwhile."""
    if name == "series":
        pytest.skip("batch norm over the steps of series takes those steps out of the padding, and their number is known on the GPU alone")
    if name == "huggingface":
        pytest.skip("transformers looks on the host whether any token is padding")
    trained, _ = train(name, context, steps=3, strategy=strategy)
    batch = worker_batch(strategy, to_device(context.device, random_batch(create_task(name), ROWS)))
    torch.cuda.set_sync_debug_mode("error")
    try:
        trained.step(batch, 3, 0.01, Flags())
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_step_is_the_plain_one(name: str, context: WorkerContext) -> None:
    """Up to TF32, in which some products are computed."""
    plain, compiled = (step_losses(name, context, compile=is_compiled) for is_compiled in (False, True))
    assert compiled == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("name", CASES)
def test_a_model_gives_what_it_gives_on_the_cpu(name: str, context: WorkerContext) -> None:
    settings, task = Train.model_validate({**BASE, "precision": "fp32"}), create_task(name)
    expected, actual = (
        create_strategy(settings, task, place).predict(to_device(place.device, random_batch(task, ROWS)))
        for place in (WorkerContext(), context)
    )
    assert torch.allclose(actual.cpu(), expected, rtol=1e-3, atol=1e-4)

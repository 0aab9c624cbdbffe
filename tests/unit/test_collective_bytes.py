"""The bytes that a plan has workers send, beside those that a step sends: one worker takes it in torch's fake process group, where every
collective returns at once. Each message is counted there."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from trainings import characters, open_dataset, training

from pipelines.config import Config
from pipelines.config.train.train import Train
from pipelines.costs.config_costs import config_costs
from pipelines.costs.operators import size_bytes
from pipelines.planning import step_time
from pipelines.planning.hardware import read_hardware
from pipelines.planning.layouts import ParallelLayout
from pipelines.planning.step_time import estimate_step
from pipelines.runtime.compat.torch_operators import OperatorMode, tensors_in
from pipelines.tasks.bind import build_task
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS, TOKENS = 32, 16
TASK = {"network": "gpt", "width": 64, "layers": 3, "heads": 4, "dropout": 0.0}
SMALLEST = 1_000
"""Bytes of a message of parameters or activations; numbers about a step are fewer."""
TOKEN_NUMBERS = 2 * 4
"""Bytes of a token that workers with parts of a vocabulary send each other, and that a plan leaves out."""
KINDS = {"all_gather": "gather", "allgather": "gather", "reduce_scatter": "scatter", "all_reduce": "sum", "allreduce": "sum"}


class CountedMessages(OperatorMode):
    """Adds up the bytes of each kind of collective: of all parts together, as the functions of `planning.collectives` take them."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        name = function._schema.name.partition("::")[2].lstrip("_")
        kind = next((kind for part, kind in KINDS.items() if name.startswith(part)), "")
        if kind and function.namespace in ("c10d", "_c10d_functional"):
            size = max(map(size_bytes, tensors_in((arguments, result))))
            self.bytes[kind] += size if size >= SMALLEST else 0
        return result


@contextmanager
def fake_group(workers: int) -> Iterator[WorkerContext]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=workers)
    try:
        yield WorkerContext(0, workers)
    finally:
        dist.destroy_process_group()


def words(folder: Path) -> Config:
    return characters(folder, rows=4 * ROWS, task=TASK)


def points(folder: Path) -> Config:
    return training(folder, rows=4 * ROWS, task={"hidden": [96, 64, 48]}, global_batch=ROWS)


def layer_norms(folder: Path) -> Config:
    return training(folder, rows=4 * ROWS, task={"hidden": [96, 64, 48], "dropout": 0.1, "batch_norm": True}, global_batch=ROWS)


def bytes_of_step(config: Config, workers: int, strategy: Mapping[str, Any], accumulation: int) -> Counter[str]:
    """The bytes of a second step: what the first one prepares is sent only once."""
    values = config.train.model_dump(mode="json", exclude_unset=True)
    train = Train.model_validate({**values, "workers": workers, "strategy": strategy, "grad_accum_steps": accumulation, "shards": 4})
    config = config.model_copy(update={"train": train})
    version = open_dataset(config)
    with fake_group(workers) as context:
        task = build_task(config.task, version.manifest)
        runner = create_strategy(train, task, context)
        loader = runner.open_loader(config, version, task)
        batches = iter(runner.batches(loader))
        runner.step(next(batches), 0, 1e-3, Flags(), compute_grad_norm=False)
        with CountedMessages() as counted:
            runner.step(next(batches), 1, 1e-3, Flags(), compute_grad_norm=False)
        loader.close()
        runner.close()
    return counted.bytes


def bytes_of_plan(config: Config, layout: ParallelLayout, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The bytes of each kind of a plan: its seconds where a byte of this kind takes one, and nothing is hidden behind computing."""
    model = config_costs(config, open_dataset(config))
    monkeypatch.setattr(step_time, "_seconds_lost", lambda machine, phases, units: sum(phase.count * phase.traffic for phase in phases))
    names = {"gather": "all_gather_seconds", "scatter": "reduce_scatter_seconds", "sum": "all_reduce_seconds"}
    planned = {}
    for kind in names:
        for other, name in names.items():
            counts = other == kind
            monkeypatch.setattr(step_time, name, lambda size, members, links, counts=counts: size if counts and members.size > 1 else 0.0)
        planned[kind] = estimate_step(model, read_hardware("h100"), layout).communication_seconds
    return planned


@pytest.mark.parametrize(
    ("workers", "strategy", "layout"),
    [
        (4, {"kind": "sharded"}, ParallelLayout(shard=4)),
        (4, {"kind": "sharded", "replicate": 2}, ParallelLayout(replicate=2, shard=2)),
        (4, {"kind": "sharded", "reshard_after_forward": False}, ParallelLayout(shard=4, reshard_after_forward=False)),
        (2, {"kind": "sharded", "tensor": 2}, ParallelLayout(tensor=2)),
        (4, {"kind": "sharded", "tensor": 2, "shard": 2}, ParallelLayout(shard=2, tensor=2)),
        (2, {"kind": "sharded", "context": 2}, ParallelLayout(context=2)),
    ],
    ids=["sharded", "replicas of shards", "without resharding", "tensor", "tensor and shards", "context"],
)
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_plan_sends_the_bytes_that_a_step_sends(
    workers: int, strategy: dict[str, Any], layout: ParallelLayout, accumulation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_bytes(words(tmp_path), workers, strategy, layout, accumulation, monkeypatch)


@pytest.mark.parametrize("config", [points, layer_norms])
def test_a_perceptron_is_divided_over_workers_that_send_what_is_planned(
    config: Callable[[Path], Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_bytes(config(tmp_path), 2, {"kind": "sharded", "tensor": 2}, ParallelLayout(tensor=2), 1, monkeypatch)


def check_bytes(
    config: Config, workers: int, strategy: Mapping[str, Any], layout: ParallelLayout, accumulation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = bytes_of_step(config, workers, strategy, accumulation)
    layout = replace(layout, microbatch=ROWS // layout.readers // accumulation, accumulation=accumulation, precision="fp32")
    planned = bytes_of_plan(config, layout, monkeypatch)
    has_vocabulary = config.task.kind == "language" and layout.tensor > 1
    planned["gather"] += TOKEN_NUMBERS * TOKENS * ROWS // layout.readers if has_vocabulary else 0
    for kind in KINDS.values():
        assert planned[kind] == pytest.approx(counted[kind], rel=0.05, abs=SMALLEST), kind

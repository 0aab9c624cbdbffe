"""Settings of `train` together: every kind of task in every precision, under every strategy, takes steps and is evaluated."""

from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group

from pipelines.config.task import KINDS
from pipelines.config.train import Train
from pipelines.data.loader.permutations import row_keys
from pipelines.data.versions.schema import ROW_KEYS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.forecasting import Forecasting
from pipelines.tasks.language import Language
from pipelines.tasks.next_item import NextItem
from pipelines.tasks.recommendation import Recommendation
from pipelines.tasks.speech import Speech
from pipelines.tasks.tabular import Tabular
from pipelines.tasks.text import Text
from pipelines.tasks.vision import Vision
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.step_statistics import Flags
from pipelines.train.strategies import create_strategy, meta_model

pytestmark = pytest.mark.usefixtures("one_thread")

LABEL = TensorColumn(name="label", dtype="int64", role="target", cardinality=3)
YES = TensorColumn(name="yes", dtype="uint8", role="target", cardinality=2)
RATING = TensorColumn(name="rating", dtype="float32", role="target")
NUMBER = TensorColumn(name="number", dtype="float32", shape=(4,))
KIND = TensorColumn(name="kind", dtype="int32", cardinality=20)
ITEM = TensorColumn(name="item", dtype="int32", cardinality=30)
IMAGE = TensorColumn(name="image", dtype="uint8", shape=(1, 12, 12))
WORDS = TensorColumn(name="words", dtype="int32", shape=(9,), cardinality=30)
SOUND = TensorColumn(name="sound", dtype="float32", shape=(8, 20))
HISTORY = TensorColumn(name="history", dtype="int32", shape=(12,), cardinality=40)
NEXT = HISTORY.model_copy(update={"name": "next", "role": "target"})
WINDOWS = TensorColumn(name="windows", dtype="uint8", shape=(17,), cardinality=30)
PAST = TensorColumn(name="past", dtype="float32", shape=(12, 3))
FUTURE = TensorColumn(name="future", dtype="float32", shape=(4, 3), role="target")
TOKENS = tuple(bytes([number]) for number in range(30))

TASKS: dict[str, tuple[type[Task], tuple[TensorColumn, ...], dict[str, Any]]] = {
    "tabular": (Tabular, (NUMBER, KIND, YES), {"hidden": [8], "batch_norm": True, "dropout": 0.1}),
    "tabular of classes": (Tabular, (NUMBER, KIND, LABEL), {"hidden": [8], "class_weights": (1.0, 2.0, 0.5)}),
    "tabular of a quantity": (Tabular, (NUMBER, KIND, RATING), {"hidden": []}),
    "vision": (Vision, (IMAGE, LABEL), {"dropout": 0.1}),
    "text": (Text, (WORDS, LABEL), {"embedding": 8, "filters": 4}),
    "speech": (Speech, (SOUND, LABEL), {"filters": [4, 8], "shift_frames": 3, "masked_frames": 4, "masked_mels": 2}),
    "recommendation, factors": (Recommendation, (KIND, ITEM, RATING), {"width": 4, "user": ["kind"], "item": ["item"]}),
    "recommendation, dlrm": (Recommendation, (KIND, ITEM, YES), {"width": 4, "hidden": [8], "network": "dlrm"}),
    "next_item": (NextItem, (HISTORY, NEXT), {"width": 8, "negatives": 10}),
    "language": (Language, (WINDOWS,), {"layers": 1, "heads": 2, "width": 16, "dropout": 0.1}),
    "forecasting": (Forecasting, (PAST, FUTURE), {"kernel": 5}),
}
PRECISIONS = ("fp32", "bf16", "fp16")
ROWS = 16


def create_task(name: str) -> Task:
    implementation, columns, settings = TASKS[name]
    kind = implementation.__module__.rpartition(".")[2]
    tokens = TOKENS if implementation is Language else ()
    classes = ("a", "b", "c")[: columns[-1].cardinality or 0]
    return implementation(KINDS[kind].model_validate({"kind": kind, **settings}), Data(columns, classes, tokens=tokens))


def random_batch(task: Task, rows: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    batch = {}
    for column in task.data.columns:
        shape = (rows, *column.shape)
        indices = torch.randint(column.cardinality or 256, shape, generator=generator)
        numbers = torch.randn(shape, generator=generator) if column.dtype == "float32" else indices
        batch[column.name] = numbers.to(getattr(torch, column.dtype))
    stride, start = row_keys(0, 0)
    return {**batch, ROW_KEYS: torch.arange(rows) * stride + start} if task.draws else batch


def worker_batch(strategy: str, batch: Batch) -> Any:
    """The argument of `step` on a worker alone, which owns two shards or plays two replicas."""
    parts = [{name: values[part] for name, values in batch.items()} for part in (slice(0, 9), slice(9, None))]
    return batch if strategy == "ddp" else parts


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("strategy", ["ddp", "exact", "local_sgd"])
@pytest.mark.parametrize("name", TASKS)
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
    cases = [(name, precision) for name in TASKS for precision in PRECISIONS]
    return {
        (name, kind): tuple(losses(context, create_task(name), strategy, kind) for strategy in ("ddp", "sharded")) for name, kind in cases
    }  # type: ignore[misc]


def test_every_task_trains_in_every_precision_when_its_model_is_spread(tmp_path: Path) -> None:
    actual, other = run_group(2, tmp_path / "group", spread)
    assert not isinstance(actual, Exception), actual
    assert actual == other
    for (name, precision), (expected, losses_when_spread) in actual.items():
        assert losses_when_spread == pytest.approx(expected, rel=1e-5 if precision == "fp32" else 0.02), (name, precision)


@pytest.mark.parametrize("name", TASKS)
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

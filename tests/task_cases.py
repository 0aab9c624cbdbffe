"""Every kind of task on columns of its own, with random rows, for tests that go through all of them."""

import json
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from pipelines.applications.detection.task import Detection
from pipelines.applications.forecasting.task import Forecasting
from pipelines.applications.huggingface.task import HuggingFace
from pipelines.applications.language.task import Language
from pipelines.applications.recommendation.next_item import NextItem
from pipelines.applications.recommendation.ratings import Recommendation
from pipelines.applications.science.task import Operator
from pipelines.applications.segmentation.task import Segmentation
from pipelines.applications.series.task import SeriesTask
from pipelines.applications.speech.task import Speech
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.train import Train
from pipelines.data.loader.order import row_keys
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import ROW_KEYS, TensorColumn
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.tabular import Tabular
from pipelines.tasks.text import Text
from pipelines.tasks.vision import Vision
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

LABEL = TensorColumn(name="label", dtype="int64", role="target", cardinality=3)
YES = TensorColumn(name="yes", dtype="uint8", role="target", cardinality=2)
RATING = TensorColumn(name="rating", dtype="float32", role="target")
NUMBER = TensorColumn(name="number", dtype="float32", shape=(4,))
KIND = TensorColumn(name="kind", dtype="int32", cardinality=20)
ITEM = TensorColumn(name="item", dtype="int32", cardinality=30)
IMAGE = TensorColumn(name="image", dtype="uint8", shape=(1, 12, 12))
WORDS = TensorColumn(name="words", dtype="int32", shape=(9,), cardinality=30)
TERMS = TensorColumn(name="terms", dtype="int32", shape=(6, 2), cardinality=30, counted=True)
SOUND = TensorColumn(name="sound", dtype="float32", shape=(8, 20))
SERIES = TensorColumn(name="series", dtype="float32", shape=(3, 15))
HISTORY = TensorColumn(name="history", dtype="int32", shape=(12,), cardinality=40)
NEXT = replace(HISTORY, name="next", role="target")
WINDOWS = TensorColumn(name="windows", dtype="uint8", shape=(17,), cardinality=30)
PAST = TensorColumn(name="past", dtype="float32", shape=(12, 3))
FUTURE = TensorColumn(name="future", dtype="float32", shape=(4, 3), role="target")
MASK = TensorColumn(name="mask", dtype="uint8", shape=(12, 12), role="target", cardinality=3)
INITIAL = TensorColumn(name="initial", dtype="float32", shape=(12,))
FINAL = TensorColumn(name="final", dtype="float32", shape=(12, 2), role="target")
BOXES = TensorColumn(name="boxes", dtype="float32", shape=(3, 5), role="target")
PHOTO = TensorColumn(name="image", dtype="uint8", shape=(3, 24, 32))
SMALL_BERT = json.dumps(
    {"model_type": "bert", "vocab_size": 29, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
     "max_position_embeddings": 9}
)  # fmt: skip
TOKENS = tuple(bytes([number]) for number in range(30))

CASES: dict[str, tuple[type[Task], tuple[TensorColumn, ...], dict[str, Any]]] = {
    "tabular": (Tabular, (NUMBER, KIND, YES), {"hidden": [8], "batch_norm": True, "dropout": 0.1}),
    "tabular of classes": (Tabular, (NUMBER, KIND, LABEL), {"hidden": [8], "class_weights": (1.0, 2.0, 0.5)}),
    "tabular of a quantity": (Tabular, (NUMBER, KIND, RATING), {"hidden": []}),
    "tabular of terms": (Tabular, (NUMBER, KIND, TERMS, LABEL), {"hidden": [8], "terms_width": 3}),
    "tabular of terms and members": (Tabular, (NUMBER, TERMS, YES), {"hidden": [8], "members": 2}),
    "vision": (Vision, (IMAGE, LABEL), {"dropout": 0.1, "shift_pixels": 1, "flips": [1], "masked_pixels": 2}),
    "text": (Text, (WORDS, LABEL), {"embedding": 8, "filters": 4}),
    "text of terms": (Text, (TERMS, LABEL), {}),
    "text of words and terms": (Text, (WORDS, TERMS, LABEL), {"embedding": 8, "filters": 4}),
    "huggingface": (HuggingFace, (WORDS, LABEL), {"architecture": SMALL_BERT}),
    "speech": (Speech, (SOUND, LABEL), {"filters": [4, 8], "shift_frames": 3, "masked_frames": 4, "masked_mels": 2}),
    "series": (SeriesTask, (SERIES, LABEL), {"network": "convolution", "filters": [4, 8], "dropout": 0.1}),
    "series of kernels": (SeriesTask, (SERIES, RATING), {"kernels": 20}),
    "recommendation, factors": (Recommendation, (KIND, ITEM, RATING), {"width": 4, "user": ["kind"], "item": ["item"]}),
    "recommendation, dlrm": (Recommendation, (KIND, ITEM, YES), {"width": 4, "hidden": [8], "network": "dlrm"}),
    "next_item": (NextItem, (HISTORY, NEXT), {"width": 8, "negatives": 10}),
    "language": (Language, (WINDOWS,), {"layers": 1, "heads": 2, "width": 16, "dropout": 0.1}),
    "segmentation": (Segmentation, (IMAGE, MASK), {"width": 4, "depth": 1, "patch": [8, 8], "flips": [0], "elastic": 1.0}),
    "operator": (
        Operator,
        (INITIAL, replace(RATING, name="viscosity", role="feature"), FINAL),
        {"modes": 3, "width": 8, "layers": 2},
    ),
    "detection": (Detection, (PHOTO, BOXES), {"width": 4, "stages": 2, "head": 8, "flips": [1], "zoom": 0.3, "jitter": 0.2}),
    "forecasting": (Forecasting, (PAST, FUTURE), {"kernel": 5}),
}
ENCODERS = {"terms": FittedEncoder(feature={"encoder": "terms"}, inputs=("text",), column=TERMS, state={
    "terms": [f"t{number}" for number in range(1, 30)], "documents": list(range(40, 11, -1)), "texts": 50})}  # fmt: skip
PRECISIONS = ("fp32", "bf16", "fp16")
ROWS = 16


def create_task(name: str) -> Task:
    implementation, columns, settings = CASES[name]
    path = f"{implementation.__module__}:{implementation.__name__}"
    kind = next(kind for kind, settings in TASKS.by_name.items() if settings.implementation == path)
    tokens = TOKENS if implementation is Language else ()
    classes = ("a", "b", "c")[: 2 if columns[-1] is BOXES else columns[-1].cardinality or 0]
    return implementation(
        TASKS.by_name[kind].model_validate({"kind": kind, **settings}), Data(columns, classes, tokens=tokens, encoders=ENCODERS)
    )


def random_batch(task: Task, rows: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    batch = {}
    for column in task.data.columns:
        shape = (rows, *column.shape)
        indices = torch.randint(column.cardinality or 256, shape, generator=generator)
        numbers = torch.randn(shape, generator=generator) if column.dtype == "float32" else indices
        numbers = _random_boxes(rows, generator) if column is BOXES else numbers
        batch[column.name] = numbers.to(getattr(torch, column.dtype))
    stride, start = row_keys(0, 0)
    return {**batch, ROW_KEYS: torch.arange(rows) * stride + start} if task.draws else batch


def _random_boxes(rows: int, generator: torch.Generator) -> torch.Tensor:
    """Boxes inside PHOTO, and some free places."""
    numbers = torch.randint(-1, 2, (rows, 3, 1), generator=generator)
    low, size = (torch.randint(low, high, (rows, 3, 2), generator=generator) for low, high in ((0, 12), (4, 12)))
    return torch.cat([numbers, low, low + size], -1).float()


def worker_batch(strategy: str, batch: Batch) -> Any:
    """The argument of `step` on a worker alone, which owns two shards or plays two replicas."""
    parts = [{name: values[part] for name, values in batch.items()} for part in (slice(0, 9), slice(9, None))]
    return batch if strategy == "ddp" else parts


def step_losses(name: str, context: WorkerContext, **settings: Any) -> list[float]:
    """The losses of two steps in fp32, without dropout, whose random numbers a compiled model draws otherwise."""
    task = create_task(name)
    parsed = Train.model_validate({"global_batch": ROWS, "shards": 2, "precision": "fp32", **settings})
    strategy = create_strategy(parsed, task, context)
    for module in strategy.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):  # of attention
            module.dropout = 0.0
    batch = {column: values.to(context.device) for column, values in random_batch(task, ROWS).items()}
    results = (strategy.step(batch, number, 0.01, Flags()) for number in range(2))
    return [float(result.loss_sum / result.weight) for result in results]

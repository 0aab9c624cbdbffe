"""Remedies of errors of strategies: models that one cannot train, and settings that do not fit a model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layouts import gpt, gpt_settings
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pipelines.applications.language.settings import LanguageSettings
from pipelines.applications.language.task import Language
from pipelines.config import parse
from pipelines.config.tasks.task import VisionSettings
from pipelines.config.train.init_from import InitFrom
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.launch.checks import check_before_etl
from pipelines.strategies.sharded.parameter_shards import check_parameters, check_recompute
from pipelines.strategies.sharded.tensor_and_context import check_divisible
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.model_parallel import LayerPlan
from pipelines.tasks.vision import Vision
from pipelines.train.exact.exact import check_model
from pipelines.train.initial_model import check_weights_fit, fit_weights
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import strategy_class
from pipelines.train.workers import WorkerContext

Do = Callable[[Path], Any]
ROWS = torch.tensor([[1.0, 2.0], [-3.0, 0.5], [-2.0, 2.0], [1.0, -1.0]])


def check_documents(strategy: Any) -> None:
    """What ETL checks before it reads documents for this strategy."""
    values = {
        "name": "x",
        "source": {"tables": {"texts": {"format": "text", "path": "texts"}}},
        "dataset": {"path": "data", "features": {"text": {"encoder": "words", "length": 8}}},
        "task": {"kind": "language"},
        "train": {"global_batch": 80, "strategy": strategy},
    }
    check_before_etl(parse(values, "x.yaml"))


class Squares:
    """The part of a task that a strategy of one worker calls: a loss of any output."""

    def __init__(self, model: nn.Module, blocks: Sequence[nn.Module] = ()) -> None:
        self._model, self._blocks = model, blocks

    def model(self) -> nn.Module:
        return self._model

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return self._blocks

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        outputs = model(batch["x"])
        return outputs.square().sum(), torch.tensor(float(len(outputs)))


def take_step(model: nn.Module, strategy: str = "exact", context: WorkerContext | None = None, **train: Any) -> nn.Module:
    """The model after a step on this worker's rows."""
    context = context or WorkerContext()
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)  # `exact` sets it for its whole process
    settings = Train.model_validate({"strategy": strategy, "shards": 2, "global_batch": 4, "workers": context.world_size, **train})
    at_work = strategy_class(settings)(settings, Squares(model), lambda: model, context)  # type: ignore[arg-type]
    worker_parts = [{"x": part.clone()} for part in ROWS.split(2)][context.rank :: context.world_size]
    try:
        rows: Any = worker_parts if strategy == "exact" else {"x": torch.cat([part["x"] for part in worker_parts])}
        at_work.step(rows, 0, 0.01, Flags())
        at_work.sync_buffers()
    finally:
        torch.use_deterministic_algorithms(before)
    return model


class Linear(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 1)


class Mean(Linear):
    """A buffer that a pass moves, written in one way or another."""

    def __init__(self, way: str, persistent: bool = True) -> None:
        super().__init__()
        self._way = way
        self.register_buffer("mean", torch.zeros(2), persistent=persistent)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, rows: Tensor) -> Tensor:
        if self._way == "replaced":
            self.mean = rows.detach().mean(0)
        elif self._way == "in place":
            self.mean.copy_(rows.detach().mean(0))
        elif self._way == "counted":
            self.count += int(rows[0, 0] > 0)
        return super().forward(rows)


class Draws(Linear):
    """Random numbers of NumPy, or of torch."""

    def __init__(self, of_torch: bool) -> None:
        super().__init__()
        self._of_torch = of_torch

    def forward(self, rows: Tensor) -> Tensor:
        noise = torch.rand(()) if self._of_torch else float(np.random.default_rng().random())
        return super().forward(rows + noise)


class Puts(Linear):
    """torch has no deterministic kernel for this."""

    def forward(self, rows: Tensor) -> Tensor:
        output = super().forward(rows)
        return output.clone().put_(torch.arange(len(rows)), output.detach().squeeze(1)) + output


class Twice(Linear):
    """Its weights are reached inside a block that is computed again, and outside of it."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self._use_reentrant = use_reentrant

    def forward(self, rows: Tensor) -> Tensor:
        inner = checkpoint(super().forward, rows.requires_grad_(), use_reentrant=self._use_reentrant)
        return inner + super().forward(rows)


class Table(nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 2, sparse=sparse)

    def forward(self, rows: Tensor) -> Tensor:
        return self.table(rows[:, 0].abs().long())


class Scaled(Linear):
    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(shape))

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows) * self.scale


class Unused(Linear):
    """A weight that no loss depends on."""

    def __init__(self, requires_grad: bool = True) -> None:
        super().__init__()
        self.spare = nn.Parameter(torch.ones(2), requires_grad=requires_grad)


class Mixed(nn.Sequential):
    def __init__(self, second: torch.dtype) -> None:
        super().__init__(nn.Linear(2, 2), nn.Linear(2, 1, dtype=second))

    def forward(self, rows: Tensor) -> Tensor:
        return self[1](self[0](rows.to(self[0].weight.dtype)).to(self[1].weight.dtype))


def gpts(of: type[Language] = Language, workers: int = 2, network: dict[str, Any] | None = None, length: int = 17, **train: Any) -> None:
    """What a training of a small language model on windows of that length refuses before it starts."""
    base = gpt()
    data = replace(base.data, columns=(replace(base.data.columns[0], shape=(length,)),))
    settings = gpt_settings(WorkerContext(world_size=workers), **train)
    strategy_class(settings).check(
        settings, of(LanguageSettings.model_validate({**base.settings.model_dump(), **(network or {})}), data), None
    )  # type: ignore[arg-type]


def pipeline(of: type[Language] = Language, degree: int = 2, **train: Any) -> None:
    gpts(of, **{**train, "strategy": {"kind": "sharded", "pipeline": degree, **train.get("strategy", {})}})


def images(network: str, pipeline: int = 2, **changes: Any) -> None:
    columns = (
        TensorColumn(name="image", dtype="uint8", shape=(3, 8, 8)),
        TensorColumn(name="kind", dtype="int64", shape=(), cardinality=3, role="target"),
    )
    task = Vision(VisionSettings.model_validate({"kind": "vision", "network": network, **changes}), Data(columns, classes=("a", "b", "c")))
    settings = gpt_settings(WorkerContext(world_size=2), strategy={"kind": "sharded", "pipeline": pipeline})
    strategy_class(settings).check(settings, task, None)  # type: ignore[arg-type]


class Tied(Language):
    """A model whose head is its embedding."""

    def model(self) -> nn.Module:
        model: Any = super().model()
        model.network.head.weight = model.network.embedding.weight
        return model


class Hollow(Language):
    """A stage without parameters."""

    def stages(self, model: nn.Module, count: int) -> Sequence[nn.Module]:
        return (model, *(nn.Identity() for _ in range(count - 1))) if count > 1 else super().stages(model, count)


class Misnamed(Language):
    def parallel_plan(self, model: nn.Module) -> dict[str, LayerPlan]:
        return {"network.blocks.*.perceptron": LayerPlan("columns")}


def check_checkpointing(kind: str, block: nn.Module | None) -> None:
    settings = Train.model_validate({"strategy": {"kind": "sharded", "activation_checkpointing": kind}})
    model = nn.Sequential(block) if block else Linear()
    check_recompute(settings, Squares(model, [block] if block else []), model)  # type: ignore[arg-type]


def check_servers(servers: int, model: nn.Module | None = None, strategy: str = "parameter_server") -> None:
    settings = Train.model_validate({"strategy": {"kind": strategy, **({"servers": servers} if strategy == "parameter_server" else {})}})
    strategy_class(settings).check(settings, Squares(model or nn.Linear(100, 1)), None)  # type: ignore[arg-type]


def weights_fit(width: int) -> None:
    check_weights_fit(nn.Linear(2, 3), nn.Linear(2, width).state_dict(), InitFrom(run="a1b2"))


def spreadable(model: nn.Module) -> None:
    check_parameters(model, [])


CASES: dict[str, tuple[Do, tuple[Do, ...]]] = {
    "which may hold documents of several clients; set train.strategy to local_sgd, ddp or exact": (
        lambda folder: check_documents({"kind": "federated", "client_column": "author"}),
        tuple(lambda folder, kind=kind: check_documents(kind) for kind in ("local_sgd", "ddp", "exact")),
    ),
    "buffer {} was added, replaced or removed by a pass": (
        lambda folder: take_step(Mean("replaced")),
        (lambda folder: take_step(Mean("in place")), lambda folder: take_step(Mean("replaced"), "ddp")),
    ),
    "register it with persistent=True, or": (
        lambda folder: take_step(Mean("in place", persistent=False)),
        (lambda folder: take_step(Mean("in place")), lambda folder: take_step(Mean("in place", persistent=False), "ddp")),
    ),
    "changed by {} on average over shards": (
        lambda folder: take_step(Mean("counted")),
        (lambda folder: take_step(Mean("counted"), "ddp"),),
    ),
    "its gradient is sparse, which no optimizer here": (
        lambda folder: take_step(Table(sparse=True), "ddp"),
        (lambda folder: take_step(Table(sparse=False), "ddp"),),
    ),
    "a reproducible strategy does not support it: use another": (
        lambda folder: take_step(Puts()),
        (lambda folder: take_step(Linear()), lambda folder: take_step(Puts(), "ddp")),
    ),
    "is a synchronised batch norm, whose sums": (
        lambda folder: check_model(nn.Sequential(nn.SyncBatchNorm(2))),
        (
            lambda folder: take_step(nn.BatchNorm1d(2)),
            lambda folder: take_step(nn.SyncBatchNorm(2), "ddp", sync_batch_norm=True),
        ),
    ),
    "has sparse gradients, which a reproducible strategy": (
        lambda folder: take_step(Table(sparse=True)),
        (lambda folder: take_step(Table(sparse=False)),),
    ),
    "two passes over the same rows from the same state differ": (
        lambda folder: take_step(Draws(of_torch=False)),
        (lambda folder: take_step(Draws(of_torch=True)), lambda folder: take_step(Draws(of_torch=False), "ddp")),
    ),
    "was computed twice in one backward pass": (
        lambda folder: take_step(Twice(use_reentrant=True)),
        (lambda folder: take_step(Twice(use_reentrant=False)),),
    ),
    "train.sync_batch_norm sums over all workers, {} of which": (
        lambda folder: gpts(workers=4, strategy={"kind": "sharded", "tensor": 2}, sync_batch_norm=True),
        (lambda folder: gpts(workers=4, strategy={"kind": "sharded", "tensor": 2}, sync_batch_norm=False),),
    ),
    "whose loss scale workers would have to agree on": (
        lambda folder: gpts(strategy={"kind": "sharded", "tensor": 2}, precision="fp16"),
        tuple(
            lambda folder, precision=precision: gpts(strategy={"kind": "sharded", "tensor": 2}, precision=precision)
            for precision in ("bf16", "fp32")
        ),
    ),
    "cannot compile divided layers for texts of several lengths": (
        lambda folder: gpts(strategy={"kind": "sharded", "tensor": 2}, compile=True),
        (lambda folder: gpts(strategy={"kind": "sharded", "tensor": 2}, compile=False),),
    ),
    "strategy sharded cannot spread it over workers": (
        lambda folder: spreadable(Mixed(torch.float64)),
        (lambda folder: spreadable(Mixed(torch.float32)), lambda folder: take_step(Mixed(torch.float64), "ddp")),
    ),
    "has sparse gradients, which no optimizer here": (
        lambda folder: spreadable(Table(sparse=True)),
        (lambda folder: spreadable(Table(sparse=False)),),
    ),
    "is a scalar, which has no rows to spread": (
        lambda folder: spreadable(Scaled()),
        (lambda folder: spreadable(take_step(Scaled(1), "ddp")),),
    ),
    "declares no blocks to compute again": (
        lambda folder: check_checkpointing("full", None),
        (lambda folder: check_checkpointing("none", None),),
    ),
    "whose statistics would count every row twice": (
        lambda folder: check_checkpointing("selective", nn.BatchNorm1d(2)),
        (lambda folder: check_checkpointing("none", nn.BatchNorm1d(2)),),
    ),
    "more than the {} rows of a pipeline in a step": (
        lambda folder: pipeline(strategy={"kind": "sharded", "microbatches": 6}, grad_accum_steps=3),
        (
            lambda folder: pipeline(strategy={"kind": "sharded", "microbatches": 4}, grad_accum_steps=3),
            lambda folder: pipeline(strategy={"kind": "sharded", "microbatches": 6}, grad_accum_steps=2),
            lambda folder: pipeline(strategy={"kind": "sharded", "microbatches": 6}, grad_accum_steps=3, global_batch=20),
        ),
    ),
    "whose loss scale stages would have to agree on": (
        lambda folder: pipeline(precision="fp16"),
        tuple(lambda folder, precision=precision: pipeline(precision=precision) for precision in ("bf16", "fp32")),
    ),
    "which a pipeline would part; set pipeline to 1": (
        lambda folder: images("small", mixup=0.2),
        (lambda folder: images("small", mixup=0.2, pipeline=1),),
    ),
    "reduce_every_pass is true, and a pipeline": (
        lambda folder: pipeline(strategy={"kind": "sharded", "reduce_every_pass": True}),
        (lambda folder: pipeline(strategy={"kind": "sharded", "reduce_every_pass": False}),),
    ),
    "which divides backward passes, as {} does not allow": (
        lambda folder: pipeline(strategy={"kind": "sharded", "schedule": "ZBVZeroBubble"}, network={"layers": 4}, compile=True),
        tuple(
            lambda folder, schedule=schedule: pipeline(
                strategy={"kind": "sharded", "schedule": schedule}, network={"layers": 4}, compile=True
            )
            for schedule in ("1F1B", "Interleaved1F1B")
        ),
    ),
    "whose statistics would be those of a microbatch": (
        lambda folder: images("resnet18"),
        (lambda folder: images("resnet18", pipeline=1), lambda folder: images("small")),
    ),
    "stage {} of task {} has no parameters": (
        lambda folder: pipeline(Hollow),
        (lambda folder: pipeline(Hollow, degree=1), lambda folder: pipeline(Language)),
    ),
    "{} {} of task {} is {}; set pipeline to 1": (
        lambda folder: pipeline(Tied),
        (lambda folder: pipeline(Tied, degree=1), lambda folder: pipeline(Language)),
    ),
    "so that a worker would have none; lower it": (
        lambda folder: check_divisible(nn.Sequential(nn.Embedding(5, 8)), {"0": LayerPlan("rows")}, 4),
        (lambda folder: check_divisible(nn.Sequential(nn.Embedding(5, 8)), {"0": LayerPlan("rows")}, 3),),
    ),
    "but its model has no such module; correct the plan": (
        lambda folder: gpts(Misnamed, strategy={"kind": "sharded", "tensor": 2}),
        (lambda folder: gpts(strategy={"kind": "sharded", "tensor": 2}),),
    ),
    "but {} has {} {}, which it does not divide; set it to one of": (
        lambda folder: gpts(workers=4, strategy={"kind": "sharded", "tensor": 4}),
        (
            lambda folder: gpts(workers=4, strategy={"kind": "sharded", "tensor": 1}),
            lambda folder: gpts(workers=4, strategy={"kind": "sharded", "tensor": 2}),
            lambda folder: gpts(workers=4, strategy={"kind": "sharded", "tensor": 4}, network={"heads": 4}),
        ),
    ),
    "and layers that workers divide cannot share weights": (
        lambda folder: gpts(Tied, strategy={"kind": "sharded", "tensor": 2}),
        (
            lambda folder: gpts(Tied, strategy={"kind": "sharded", "tensor": 1}),
            lambda folder: gpts(Language, strategy={"kind": "sharded", "tensor": 2}),
        ),
    ),
    "which {}, two parts for each worker, does not divide": (
        lambda folder: gpts(workers=6, strategy={"kind": "sharded", "context": 3, "shard": 2}),
        (
            *(
                lambda folder, context=context: gpts(workers=8, shards=8, strategy={"kind": "sharded", "context": context, "shard": "auto"})
                for context in (1, 2, 4, 8)
            ),
            lambda folder: gpts(workers=6, strategy={"kind": "sharded", "context": 3, "shard": 2}, length=19),
        ),
    ),
    "whose weights differ from this model's in": (
        lambda folder: weights_fit(4),
        (
            lambda folder: weights_fit(3),
            lambda folder: fit_weights(nn.Linear(2, 3), {"bias": torch.zeros(3)}, InitFrom(run="a1b2", strict=False)),
        ),
    ),
    "the model's parameters can only be divided among": (
        lambda folder: check_servers(4),
        (lambda folder: check_servers(3),),
    ),
    "but strategy parameter_server holds float32": (
        lambda folder: check_servers(1, nn.Linear(1, 1, dtype=torch.float64)),
        (
            lambda folder: check_servers(1, nn.Linear(1, 1, dtype=torch.float64), "exact"),
            lambda folder: take_step(Mixed(torch.float64).double()),
        ),
    ),
}

"""Weights of rows: `task.sample_weight` and the encoder `weight`. The loss is that of rows as often as their weights, on any workers."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from groups import run_group
from sklearn.metrics import log_loss, mean_squared_error
from test_tasks import make_batch, make_task, measure
from trainings import open_dataset, training

from pipelines.api import open_loader
from pipelines.config import load
from pipelines.config.dataset.dataset import Dataset
from pipelines.data.features import Encoders, check_columns, fit_encoders, needs, restore_encoder
from pipelines.data.features.statistics import Accumulator, statistics_from_summary
from pipelines.errors import ConfigError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Batch
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

VALUES = {"path": "d", "features": {"x": "identity"}, "target": {"y": "binary"}, "passthrough": {"w": "weight"}}


def fit_weights(values: pa.Array) -> dict[str, Any]:
    dataset = Dataset.model_validate(VALUES)
    columns = {"x": pa.array([0.0] * len(values)), "w": values, "y": pa.array([True] * len(values))}
    statistics = {}
    for name, column in columns.items():
        accumulator = Accumulator(needs(dataset)[name])
        accumulator.add(column, np.arange(len(column), dtype=np.uint64))
        statistics[name] = statistics_from_summary(accumulator.summary(), accumulator.drain())
    return {"w": fit_encoders(dataset, statistics, pa.schema([(name, column.type) for name, column in columns.items()]))["w"]}


def test_weights_have_the_mean_1_and_what_is_no_weight_is_refused() -> None:
    encoders = fit_weights(pa.array([1.0, 2.0, 6.0, 3.0]))
    encoded, reasons = Encoders(encoders).encode(pa.table({"w": [0.0, 3.0, 9.0, -1.0, float("nan"), float("inf"), None, 1e300]}))
    assert encoded["w"].to_pylist() == [0.0, 1.0, 3.0]
    assert reasons.to_pylist()[3:] == [f"w: weight cannot encode {value}" for value in ("-1.0", "nan", "inf", "NULL", "1e+300")]
    assert restore_encoder(encoders["w"]).decode(np.array([0.0, 1.0, 3.0])).tolist() == [0, 3, 9]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 0, 0], "column w has the mean 0 in the training split, but weights are at least 0"),
        ([-3.0, 1.0], "column w has the mean -1 in the training split"),
        ([None, float("nan")], "column w has no number in the training split"),
    ],
)
def test_a_split_without_weights_is_refused_before_rows_are_encoded(values: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit_weights(pa.array(values))


def test_a_weight_is_a_number() -> None:
    dataset = Dataset.model_validate(VALUES)
    schema = pa.schema([("x", pa.float64()), ("w", pa.string()), ("y", pa.bool_())])
    with pytest.raises(ConfigError, match=r"passthrough\.w: weight cannot encode column w, which is string: it takes numbers"):
        check_columns(dataset, schema)


def test_the_column_is_one_of_weights() -> None:
    flags = {"task.sample_weight": "wieght"}
    with pytest.raises(ConfigError, match=r"task\.sample_weight: wieght .* dataset\.passthrough, which is empty; add passthrough"):
        load("conf/adult.yaml", flags)
    with pytest.raises(ConfigError, match=r"did you mean weight\?"):
        load("conf/adult.yaml", {**flags, "dataset.passthrough": {"weight": "weight"}})
    with pytest.raises(ConfigError, match=r"has the encoder identity, with which a weight may be negative"):
        load("conf/adult.yaml", {"task.sample_weight": "w", "dataset.passthrough": {"w": "identity"}})
    for name, value in {"sample_weight": "w", "loss": "poisson", "metrics": ["f1"], "target_weights": {"a": 1.0}}.items():
        with pytest.raises(ConfigError, match=rf"task\.{name}"):
            load("conf/shakespeare.yaml", {f"task.{name}": value})


def weigh(batch: Batch, weights: torch.Tensor) -> Batch:
    return {**batch, "w": weights.float()}


@pytest.mark.parametrize(
    ("kind", "class_weights"), [("binary", "none"), ("classes", "none"), ("classes", "balanced"), ("quantity", "none")]
)
def test_a_weight_counts_as_that_many_rows(kind: str, class_weights: str) -> None:
    torch.manual_seed(0)
    batch, copies = make_batch(kind, 60), torch.arange(60) % 4
    task, plain = (make_task(kind, class_weights=class_weights, sample_weight=name) for name in ("w", ""))
    model = task.model()
    repeated = {name: values.repeat_interleave(copies, 0) for name, values in batch.items()}
    weighted = task.loss(model, weigh(batch, copies))
    torch.testing.assert_close(weighted, plain.loss(model, repeated))
    gradients = [torch.autograd.grad(total / weight, list(model.parameters())) for total, weight in (weighted, plain.loss(model, repeated))]
    torch.testing.assert_close(*gradients)
    output = model(batch)
    measured = measure(task, (output, weigh(batch, copies)))
    assert measured["loss"] == pytest.approx(measure(plain, (model(repeated), repeated))["loss"])
    unweighted = measure(plain, (output, batch))
    assert {name: value for name, value in measured.items() if name != "loss"} == {
        name: value for name, value in unweighted.items() if name != "loss"
    }, "other metrics count every row once"


def test_the_weighted_loss_is_scikit_learn_s() -> None:
    weights = torch.rand(257)
    batch, output = make_batch("binary"), torch.randn(257, 1)
    loss = measure(make_task("binary", sample_weight="w"), (output, weigh(batch, weights)))["loss"]
    assert loss == pytest.approx(log_loss(batch["y"], output[:, 0].double().sigmoid(), sample_weight=weights))
    batch = make_batch("quantity")
    loss = measure(make_task("quantity", sample_weight="w"), (output, weigh(batch, weights)))["loss"]
    assert loss == pytest.approx(mean_squared_error(batch["y"], output[:, 0], sample_weight=weights))


@pytest.mark.parametrize("kind", ["binary", "quantity"])
def test_the_trivial_predictor_of_the_loss_is_the_best_constant_by_weight(kind: str) -> None:
    weights = torch.rand(257)
    batch = weigh(make_batch(kind), weights)
    task = make_task(kind, sample_weight="w")
    (predictor,) = (predictor for predictor in task.trivial_predictors() if "loss" in predictor.stands_for)
    predictor.fit(batch)
    predictor.finish()
    best = measure(task, (predictor.output(batch), batch))["loss"]
    for step in (-0.05, 0.05):
        assert best < measure(task, (predictor.output(batch) + step, batch))["loss"]


CLIENTS: dict[str, Any] = {"strategy": {"kind": "federated", "client_column": "label", "per_round": 2, "rounds_per_epoch": 4}}


def train_and_digest(context: WorkerContext, home: Path, strategy: str, weight_scale: float | None) -> str:
    folder = home / f"scale-{weight_scale}"
    folder.mkdir(exist_ok=True)
    settings = CLIENTS if strategy == "federated" else {"strategy": strategy}
    config = training(folder, rows=512, epochs=2, shards=4, task={"hidden": [8]}, weight_scale=weight_scale, clip_norm=1.0, **settings)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    checkpoints = Checkpoints(RunDirectory(str(folder / f"run-{strategy}-{context.world_size}")), context, 2)
    created = create_strategy(config.train, task, context)
    Loop(config, version, task, created, checkpoints, Hooks()).run()
    weights = created.weights()  # collective; rank 0 has them
    return model_digest(weights) if weights else ""


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("strategy", ["ddp", "exact", "local_sgd", "federated"])
def test_weights_decide_a_training_and_their_scale_does_not(tmp_path: Path, strategy: str) -> None:
    """Twice the weights have the same mean, bit for bit."""
    weighted, doubled, unweighted = (train_and_digest(WorkerContext(), tmp_path, strategy, scale) for scale in (1.0, 2.0, None))
    assert weighted == doubled != unweighted


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_weights_reach_workers_that_divide_a_model(tmp_path: Path) -> None:
    weighted, doubled, unweighted = (
        run_group(2, tmp_path / f"group-{scale}", train_and_digest, tmp_path, "sharded", scale) for scale in (1.0, 2.0, None)
    )
    assert weighted == doubled != unweighted


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_p5_weighted_rows_give_the_same_bits_on_two_workers(tmp_path: Path) -> None:
    alone = train_and_digest(WorkerContext(), tmp_path, "exact", 1.0)
    assert run_group(2, tmp_path / "group", train_and_digest, tmp_path, "exact", 1.0) == [alone, ""]


def test_the_loader_of_a_config_has_the_weights_that_its_task_reads(tmp_path: Path) -> None:
    config = training(tmp_path, weight_scale=1.0)
    batch = next(iter(open_loader(config)))
    assert set(batch) == {*(f"x{number}" for number in range(8)), "weight", "label"} and batch["weight"].max() == 3
    assert "weight" not in next(iter(open_loader(open_dataset(config))))

"""Losses, metrics and predictions of each kind of target, against plain means, scikit-learn and two processes."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from groups import run_processes
from sklearn import metrics as sklearn_metrics
from torch import nn
from torch.nn import functional

from pipelines.config.tasks.task import TabularSettings as Settings
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.tabular import Tabular

ROWS = 257
FEATURE = TensorColumn(name="x", dtype="float32", shape=(4,))
KINDS = {
    "binary": TensorColumn(name="y", dtype="uint8", role="target", cardinality=2),
    "classes": TensorColumn(name="y", dtype="int64", role="target", cardinality=3),
    "quantity": TensorColumn(name="y", dtype="float32", role="target"),
}


def decode(values: np.ndarray) -> np.ndarray:
    """Standardised house values, back in dollars."""
    return values * 115_000.0 + 207_000.0


def make_task(kind: str, **settings: object) -> Tabular:
    names = {"binary": ("no", "yes"), "classes": ("ant", "bee", "cat"), "quantity": ()}[kind]
    data = Data((FEATURE, KINDS[kind]), names, tuple(range(10, 10 + 30 * len(names), 30)), decode if kind == "quantity" else lambda y: y)
    return Tabular(Settings.model_validate({"kind": "tabular", "hidden": [], **settings}), data)


def make_batch(kind: str, rows: int = ROWS, seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    target = {
        "binary": torch.randint(2, (rows,), generator=random, dtype=torch.uint8),
        "classes": torch.randint(3, (rows,), generator=random),
        "quantity": torch.randn(rows, generator=random),
    }[kind]
    return {"x": torch.randn(rows, 4, generator=random), "y": target}


def measure(task: Tabular, *outputs_and_batches: tuple[torch.Tensor, Batch]) -> dict[str, float]:
    metrics = task.metrics()
    for output, batch in outputs_and_batches:
        task.update(metrics, output, batch)
    return {name: float(value) for name, value in metrics.compute().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_sum_over_weight_is_that_of_a_plain_mean(kind: str) -> None:
    torch.manual_seed(0)
    task, batch = make_task(kind), make_batch(kind)
    model = task.model()
    total, weight = task.loss(model, batch)
    summed = torch.autograd.grad(total / weight, model.parameters())
    output, target = model(batch), batch["y"]
    mean = {
        "binary": lambda: functional.binary_cross_entropy_with_logits(output[:, 0], target.float()),
        "classes": lambda: functional.cross_entropy(output, target),
        "quantity": lambda: functional.mse_loss(output[:, 0], target),
    }[kind]()
    assert weight == ROWS
    torch.testing.assert_close(summed, torch.autograd.grad(mean, model.parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_unequal_shares_add_up_to_the_whole(kind: str) -> None:
    task, batch = make_task(kind), make_batch(kind)
    model = task.model()
    loss_of_batch = task.loss(model, batch)
    shares = [task.loss(model, {name: values[rows] for name, values in batch.items()}) for rows in (slice(0, 40), slice(40, None))]
    torch.testing.assert_close(sum(total for total, _ in shares), loss_of_batch[0])
    torch.testing.assert_close(sum(weight for _, weight in shares), loss_of_batch[1])


@pytest.mark.parametrize("weights", ["balanced", (0.5, 2.0, 1.0)])
def test_class_weights_enter_the_sum_and_the_weight(weights: object) -> None:
    task, batch = make_task("classes", class_weights=weights), make_batch("classes")
    model = task.model()
    weight_by_class = torch.tensor([120 / (3 * 10), 120 / (3 * 40), 120 / (3 * 70)] if weights == "balanced" else weights)
    total, weight = task.loss(model, batch)
    torch.testing.assert_close(total / weight, functional.cross_entropy(model(batch), batch["y"], weight_by_class))
    torch.testing.assert_close(weight, weight_by_class[batch["y"]].sum())


def test_class_weights_of_a_binary_target() -> None:
    task, batch = make_task("binary", class_weights=(1.0, 3.0)), make_batch("binary")
    total, weight = task.loss(task.model(), batch)
    assert weight == ROWS + 2 * batch["y"].sum()
    assert total > 0


@pytest.mark.parametrize(
    ("kind", "weights", "says"),
    [
        ("quantity", "balanced", "is balanced, but the target y has no classes; set it to none"),
        ("classes", (1.0, 2.0), "is [1.0, 2.0]; it must be 3 weights, not all 0, for ant, bee, cat"),
        ("binary", (0.0, 0.0), "is [0.0, 0.0]; it must be 2 weights"),
    ],
)
def test_class_weights_that_do_not_fit(kind: str, weights: object, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_task(kind, class_weights=weights)
    assert says in str(error.value)


def test_a_target_of_a_picture_is_refused() -> None:
    target = TensorColumn(name="y", dtype="float32", shape=(2, 3), role="target")
    with pytest.raises(ConfigError, match=r"the target y has shape \(2, 3\) per row, but this task predicts one value"):
        Tabular(Settings(kind="tabular"), Data((FEATURE, target)))


def test_binary_metrics_are_sklearns() -> None:
    task, batch = make_task("binary"), make_batch("binary")
    output = torch.randn(ROWS, 1).round(decimals=1)
    metric_by_name = measure(task, *((output[rows], {"y": batch["y"][rows]}) for rows in (slice(0, 100), slice(100, None))))
    probability, true = output[:, 0].double().sigmoid().numpy(), batch["y"].numpy()
    assert metric_by_name["auc"] == pytest.approx(sklearn_metrics.roc_auc_score(true, probability), abs=1e-6)
    assert metric_by_name["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(true, output[:, 0].numpy() > 0))
    assert metric_by_name["loss"] == pytest.approx(sklearn_metrics.log_loss(true, probability))
    assert task.monitor == ("auc", "max")


def test_class_metrics_are_sklearns() -> None:
    task, batch = make_task("classes"), make_batch("classes")
    output = torch.randn(ROWS, 3)
    metric_by_name = measure(task, (output, batch))
    assert metric_by_name["accuracy"] == pytest.approx(sklearn_metrics.accuracy_score(batch["y"], output.argmax(1)))
    assert metric_by_name["loss"] == pytest.approx(sklearn_metrics.log_loss(batch["y"], output.double().softmax(1)))
    assert task.monitor == ("accuracy", "max")


def test_metrics_of_a_quantity_are_in_raw_units() -> None:
    task, batch = make_task("quantity"), make_batch("quantity")
    output = batch["y"][:, None] + 0.3 * torch.randn(ROWS, 1)
    metric_by_name = measure(task, *((output[rows], {"y": batch["y"][rows]}) for rows in (slice(0, 100), slice(100, None))))
    true, predicted = decode(batch["y"].double().numpy()), decode(output[:, 0].double().numpy())
    assert metric_by_name["rmse"] == pytest.approx(math.sqrt(sklearn_metrics.mean_squared_error(true, predicted)))
    assert metric_by_name["mse"] == pytest.approx(sklearn_metrics.mean_squared_error(true, predicted))
    assert metric_by_name["mae"] == pytest.approx(sklearn_metrics.mean_absolute_error(true, predicted))
    assert metric_by_name["r2"] == pytest.approx(sklearn_metrics.r2_score(true, predicted))
    assert metric_by_name["loss"] == pytest.approx(functional.mse_loss(output[:, 0], batch["y"]).item())
    assert task.monitor == ("rmse", "min")


@pytest.mark.parametrize("kind", KINDS)
def test_batches_without_rows_count_for_nothing(kind: str) -> None:
    task, batch, empty = make_task(kind), make_batch(kind), make_batch(kind, rows=0)
    model = task.model()
    total, weight = task.loss(model, empty)
    assert (total.item(), weight.item()) == (0, 0)
    metric_by_name = measure(task, (model(empty), empty), (model(batch), batch), (model(empty), empty))
    assert metric_by_name == measure(task, (model(batch), batch))
    assert all(len(values) == 0 for values in task.predict(model(empty)).values())


def test_r2_of_a_single_row_is_not_a_number() -> None:
    batch = make_batch("quantity", rows=1)
    assert math.isnan(measure(make_task("quantity"), (torch.zeros(1, 1), batch))["r2"])


def test_a_nan_is_not_left_out_of_the_metrics() -> None:
    batch = make_batch("classes", rows=2)
    assert math.isnan(measure(make_task("classes"), (torch.tensor([[0.0, 1.0, 2.0], [math.nan, 0.0, 0.0]]), batch))["loss"])


def test_predictions_are_for_people() -> None:
    binary = make_task("binary").predict(torch.tensor([[0.0], [math.log(3)]]))
    assert binary["prediction"] == ["no", "yes"]
    assert binary["probability_yes"] == pytest.approx([0.5, 0.75])
    assert binary["probability_no"] == pytest.approx([0.5, 0.25])
    classes = make_task("classes").predict(torch.tensor([[0.0, math.log(2), 0.0]], dtype=torch.bfloat16))
    assert classes["prediction"] == ["bee"]
    assert list(classes) == ["prediction", "probability_ant", "probability_bee", "probability_cat"]
    assert make_task("quantity").predict(torch.tensor([[0.0], [1.0]])) == {"prediction": [207_000.0, 322_000.0]}


def _measure_a_share(rank: int, store: str, kind: str) -> None:
    """One of two workers; the second has no rows at all."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    task = make_task(kind)
    metrics = task.metrics()
    batch = make_batch(kind, rows=0 if rank else ROWS)
    task.update(metrics, torch.linspace(-1, 1, len(batch["y"]) * task.outputs).reshape(-1, task.outputs), batch)
    metric_by_name = {name: float(value) for name, value in metrics.compute().items()}
    torch.save(metric_by_name, f"{store}.{kind}.{rank}")
    dist.destroy_process_group()


def test_metrics_of_two_workers_are_those_of_one(tmp_path: Path) -> None:
    kind = "binary"  # its AUC is the one that gathers rows
    run_processes(2, _measure_a_share, f"{tmp_path}/store", kind)
    batch = make_batch(kind)
    expected = measure(make_task(kind), (torch.linspace(-1, 1, ROWS).reshape(-1, 1), batch))
    for rank in range(2):
        assert torch.load(f"{tmp_path}/store.{kind}.{rank}") == pytest.approx(expected)


def test_models_are_initialised_from_torchs_random_state() -> None:
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(make_task("classes", hidden=[8]).model().parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def shift(offset: float) -> float:
    """R² of numbers with a spread of 1 that lie far from zero, such as dates in seconds."""
    metrics = make_task("quantity").metrics()
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(1_000, generator=generator, dtype=torch.float64) + offset
    for part in true.split(300):
        metrics["r2"].update(part + 0.1, part)
    return float(metrics["r2"].compute())


def test_r2_holds_far_from_zero() -> None:
    assert shift(1.7e9) == pytest.approx(shift(0.0), abs=1e-5)

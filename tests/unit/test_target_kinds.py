"""Targets that are counts, quantiles, ranks, labels and several numbers: losses against torch's, SciPy's and scikit-learn's own, the best
constant prediction, and predictions through the model and through an export."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fitting import fit
from scipy import stats
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    fbeta_score,
    mean_absolute_percentage_error,
    mean_pinball_loss,
    mean_poisson_deviance,
)
from test_tasks import make_batch, make_task, measure
from torch.nn import functional

from pipelines.config import load
from pipelines.config.serving import Endpoint
from pipelines.config.tasks.task import TabularSettings
from pipelines.data.features import Encoders
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import schema_to_text, to_numpy
from pipelines.errors import ConfigError
from pipelines.serving.http.openapi import openapi
from pipelines.serving.http.served_model import ServedModel
from pipelines.serving.model import Predictor
from pipelines.serving.model.scoring import model_signature
from pipelines.tasks.answers import find_answer
from pipelines.tasks.base import Batch
from pipelines.tasks.bind import check_task, task_data
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import metric_values
from pipelines.tasks.tabular import Tabular
from pipelines.tasks.targets.base import Target

ROWS = 300
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=ROWS)
RAW: dict[str, pa.Array] = {
    "visits": pa.array(RANDOM.poisson(np.exp(1 + 0.5 * X))),
    "price": pa.array(200_000 + 50_000 * X * RANDOM.normal(size=ROWS)),
    "grade": pa.array(np.array(["low", "medium", "high", "top"])[np.clip(X + 2, 0, 3).astype(int)]),
    "tags": pa.array([[tag for tag, bar in (("a", 0.0), ("b", 0.5), ("c", 1.5)) if value > bar] for value in X]),
    "size": pa.array(30 * X + 100),
}
ORDER = ["low", "medium", "high", "top"]
KINDS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "poisson": ("visits", "count", {"loss": "poisson"}),
    "negative_binomial": ("visits", "count", {"loss": "negative_binomial"}),
    "quantiles": ("price", "standardize", {"loss": "quantiles"}),
    "quantiles of a logarithm": ("price", "log1p", {"loss": "quantiles", "quantiles": [0.05, 0.25, 0.95]}),
    "ordinal": ("grade", {"encoder": "label", "order": ORDER}, {"loss": "ordinal"}),
    "labels": ("tags", "labels", {}),
    "numbers": ("both", {"encoder": "vector", "columns": ["price", "size"]}, {"target_weights": {"size": 3.0}}),
}


@dataclass
class Case:
    task: Tabular
    batch: Batch
    encoders: dict[str, FittedEncoder]

    @property
    def truth(self) -> torch.Tensor:
        return self.batch[self.task.data.target.name]


def make_case(kind: str, **settings: Any) -> Case:
    name, encoder, task_settings = KINDS[kind]
    raw = pa.table({"x": X, "w": np.arange(ROWS) % 3, **RAW})
    encoders = fit({"x": "identity", "w": "weight"}, {name: encoder}, raw)
    encoded, reasons = Encoders(encoders).encode(raw)
    assert reasons.null_count == ROWS
    task = Tabular(TabularSettings.model_validate({"hidden": [], **task_settings, **settings}), task_data(encoders))
    columns = {column: to_numpy(fitted.column, encoded[column].combine_chunks()) for column, fitted in encoders.items()}
    return Case(task, {column: torch.from_numpy(values.copy()) for column, values in columns.items()}, encoders)


def outputs(case: Case, seed: int = 0) -> torch.Tensor:
    return torch.randn(ROWS, case.task.outputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def reference_losses(kind: str, output: torch.Tensor, case: Case) -> np.ndarray:
    """The loss of each row by another implementation."""
    truth, target = case.truth.double(), case.task.data.target.name
    mean = case.encoders[target].state.get("mean")
    if kind == "poisson":
        return -stats.poisson.logpmf(truth.numpy(), np.exp(output[:, 0].numpy()) * mean)
    if kind == "negative_binomial":
        number = np.exp(-output[:, 1].numpy())
        return -stats.nbinom.logpmf(truth.numpy(), number, number / (number + np.exp(output[:, 0].numpy()) * mean))
    if kind.startswith("quantiles"):
        levels = case.task.settings.quantiles
        by_level = [[mean_pinball_loss([t], [p], alpha=q) for t, p in zip(truth, output[:, k], strict=True)] for k, q in enumerate(levels)]
        return np.mean(by_level, axis=0)
    if kind == "ordinal":
        logits = [output[:, 0].numpy()]
        for place in range(1, output.shape[1]):
            logits.append(logits[-1] - np.log1p(np.exp(output[:, place].numpy())))
        above = np.stack([np.ones(ROWS), *map(stats.logistic.cdf, logits), np.zeros(ROWS)], 1)
        return -np.log((above[:, :-1] - above[:, 1:])[np.arange(ROWS), case.truth])
    if kind == "labels":
        return functional.binary_cross_entropy_with_logits(output, truth, reduction="none").mean(1).numpy()
    assert kind == "numbers"
    return (output - truth).square().numpy() @ [0.25, 0.75]


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_another_implementation(kind: str) -> None:
    case = make_case(kind)
    output = outputs(case)
    losses = case.task.target.losses(output, case.truth)
    assert losses.shape == (ROWS,)
    np.testing.assert_allclose(losses, reference_losses(kind, output, case), rtol=1e-9, atol=1e-12)
    in_float = case.task.target.losses(output.float(), case.truth)
    assert in_float.dtype == torch.float32
    torch.testing.assert_close(in_float.double(), losses, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_those_of_the_loss(kind: str) -> None:
    case = make_case(kind)
    output = outputs(case)
    first, second = case.task.target.derivatives(output, case.truth)
    expected_first, expected_second = Target.derivatives(case.task.target, output, case.truth)
    assert torch.equal(first, expected_first) and torch.equal(second, expected_second)
    assert first.shape == second.shape == output.shape and first.any()


def test_the_poisson_loss_is_torch_s_but_for_its_approximation() -> None:
    case = make_case("poisson")
    output, log_mean = outputs(case), math.log(case.encoders["visits"].state["mean"])
    expected = (
        functional.poisson_nll_loss(output[:, 0] + log_mean, case.truth.double(), reduction="none") + (case.truth + 1).double().lgamma()
    )
    torch.testing.assert_close(case.task.target.losses(output, case.truth), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_no_constant_is_better_than_the_trivial_predictor_of_the_loss(kind: str) -> None:
    """Also by the weights of rows; every metric with a direction has a predictor."""
    case = make_case(kind, sample_weight="w")
    predictors = case.task.trivial_predictors()
    for predictor in predictors:
        for half in (slice(0, 100), slice(100, None)):
            predictor.fit({name: values[half] for name, values in case.batch.items()})
        predictor.finish()
    (predictor,) = (predictor for predictor in predictors if predictor.stands_for == ("loss",))
    best = measure(case.task, (predictor.output(case.batch), case.batch))["loss"]
    for place in range(case.task.outputs) if kind != "negative_binomial" else [0]:
        for step in (-0.1, 0.1):
            moved = predictor.output(case.batch).clone()
            moved[:, place] += step
            assert best <= measure(case.task, (moved, case.batch))["loss"] + 1e-9
    named = {name for predictor in predictors for name in predictor.stands_for}
    assert named >= set(case.task.describe_metrics("")["better"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", [1, 4])
def test_a_task_of_every_kind_learns_is_measured_and_predicts(kind: str, members: int) -> None:
    case = make_case(kind, hidden=[16], members=members)
    torch.manual_seed(0)
    model = case.task.model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        total, weight = case.task.loss(model.train(), case.batch)
        assert weight == ROWS
        (total / weight).backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(total.detach() / weight))
    assert losses[-1] < losses[0]
    with torch.no_grad():
        output = model.eval()(case.batch)
    metrics = case.task.metrics()
    case.task.update(metrics, output, case.batch)
    measured = metric_values(metrics)
    assert all(isinstance(value, float) for value in measured.values()), measured
    assert case.task.monitor[0] in measured
    form = case.task.prediction_form()
    predicted = case.task.predict(output)
    assert find_answer(form)(output.numpy(), json.loads(json.dumps(form)), case.task.data.decode) == predicted
    target, wide = case.task.target, output.double()
    if target.figures == "classes":  # what metrics are of is what is predicted
        by_class = np.transpose([predicted[f"probability_{name}"] for name in target.classes])
        np.testing.assert_allclose(by_class, target.probabilities(wide), rtol=1e-9, atol=1e-12)
        assert predicted["prediction"] == [target.classes[number] for number in target.decide(wide).tolist()]
    elif target.figures == "quantity":
        np.testing.assert_allclose(predicted["prediction"], target.quantities(wide), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_p7_http_answers_are_those_of_the_task(tmp_path: Path, kind: str) -> None:
    case = make_case(kind)
    raw = pa.schema([("x", pa.float64())])
    rows = {name: values.numpy() for name, values in case.batch.items() if name != "w"}
    encoders = {name: fitted for name, fitted in case.encoders.items() if name != "w"}
    version = commit_arrays(str(tmp_path / "data"), {"train": [rows]}, encoders, 2**16, raw_schema=schema_to_text(raw))
    model = Tabular(case.task.settings, task_data(encoders)).model().eval()
    predictor = Predictor(case.task.settings, version.manifest, model.state_dict())
    served = ServedModel(predictor, "1", "ab" * 32, {"x": 0.0})
    (answers,) = served.answers([[{"x": float(x)} for x in X]])
    with torch.no_grad():
        expected = case.task.predict(model(case.batch))
    assert json.dumps(answers, allow_nan=False) and openapi(served, Endpoint(), needs_token=False) and model_signature(predictor)
    for name, values in expected.items():
        actual = [row[name] for row in answers]
        assert actual == list(values) if isinstance(values[0], str) else actual == pytest.approx(list(values), rel=1e-5)
    assert set(answers[0]) == {*expected, "refused"}


def test_quantiles_never_cross_and_converge_to_those_of_linear_programs() -> None:
    case = make_case("quantiles")
    predicted = case.task.predict(outputs(case))
    low, middle, high = (predicted[f"quantile_{level}"] for level in (0.1, 0.5, 0.9))
    assert all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True)) and predicted["prediction"] == middle
    model = case.task.model().double()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = case.task.target.losses(model.layers(torch.stack([case.batch["x"], case.batch["w"]], 1).double()), case.truth).mean()
        loss.backward()
        return loss

    loss = float(optimizer.step(closure).detach())
    loss = float(closure().detach())
    features, truth = torch.stack([case.batch["x"], case.batch["w"]], 1).numpy(), case.truth.numpy()
    best = [
        mean_pinball_loss(truth, QuantileRegressor(quantile=level, alpha=0).fit(features, truth).predict(features), alpha=level)
        for level in (0.1, 0.5, 0.9)
    ]
    assert loss == pytest.approx(np.mean(best), rel=0.02)


def test_metrics_of_counts_and_quantiles_are_scikit_learn_s() -> None:
    case = make_case("poisson", metrics=["mape"])
    output = outputs(case)
    metrics = case.task.metrics()
    case.task.update(metrics, output, case.batch)
    measured = metric_values(metrics)
    assert measured["deviance"] == pytest.approx(mean_poisson_deviance(RAW["visits"], case.task.predict(output)["prediction"]))
    assert measured["mape"] == "a value is 0, or a millionth of the largest or less"
    case = make_case("quantiles")
    output = outputs(case)
    predicted = case.task.predict(output)
    by_level = [mean_pinball_loss(RAW["price"], predicted[f"quantile_{level}"], alpha=level) for level in (0.1, 0.5, 0.9)]
    assert measure(case.task, (output, case.batch))["pinball"] == pytest.approx(np.mean(by_level), rel=1e-6)


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_further_metrics_of_classes_are_scikit_learn_s(kind: str) -> None:
    names = ["balanced_accuracy", "f1", "f2", "f0_5", *(["average_precision"] if kind == "binary" else [])]
    task, batch = make_task(kind, metrics=names), make_batch(kind)
    output = torch.randn(len(batch["y"]), task.outputs).round(decimals=1)
    measured, truth = (
        measure(
            task,
            (output[:100], {name: values[:100] for name, values in batch.items()}),
            (output[100:], {name: values[100:] for name, values in batch.items()}),
        ),
        batch["y"].numpy(),
    )
    predicted = (output[:, 0] > 0).numpy() if kind == "binary" else output.argmax(1).numpy()
    average = "binary" if kind == "binary" else "macro"
    assert measured["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, predicted))
    for name, beta in (("f1", 1), ("f2", 2), ("f0_5", 0.5)):
        assert measured[name] == pytest.approx(fbeta_score(truth, predicted, beta=beta, average=average))
        assert task.choose_monitor(name) == (name, "max")
    if kind == "binary":
        assert measured["average_precision"] == pytest.approx(average_precision_score(truth, output[:, 0]))


def test_a_macro_f_beta_leaves_out_classes_that_neither_occur_nor_are_predicted() -> None:
    task = make_task("classes", metrics=["f1", "balanced_accuracy"])
    truth, output = torch.tensor([0, 0, 1, 1]), torch.tensor([[1.0, 0, -9], [0, 1, -9], [0, 1, -9], [0, 1, -9]])
    measured = measure(task, (output, {"y": truth}))
    assert measured["f1"] == pytest.approx(f1_score(truth, output.argmax(1), average="macro"))
    assert measured["balanced_accuracy"] == 0.75


def test_the_relative_error_is_scikit_learn_s() -> None:
    task, batch = make_task("quantity", metrics=["mape"]), make_batch("quantity")
    output = torch.randn(len(batch["y"]), 1, dtype=torch.float64)
    truth, predicted = (task.target.raw(values).numpy() for values in (batch["y"], output[:, 0]))
    assert measure(task, (output, batch))["mape"] == pytest.approx(mean_absolute_percentage_error(truth, predicted))


def missing_values(kind: str, names: list[str], target: torch.Tensor) -> dict[str, Any]:
    task = make_task(kind, metrics=names)
    metrics = task.metrics()
    task.update(metrics, torch.zeros(len(target), task.outputs), {"y": target})
    return {name: value for name, value in metric_values(metrics).items() if name in names}


@pytest.mark.parametrize(("target", "reason"), [([1, 1, 1], "one class"), ([0], "one class"), ([], "no rows")])
def test_what_is_not_defined_on_a_split_has_no_value(target: list[int], reason: str) -> None:
    names = ["average_precision", "balanced_accuracy", "f1"]
    assert missing_values("binary", names, torch.tensor(target, dtype=torch.uint8)) == dict.fromkeys(names, reason)
    assert missing_values("classes", names[1:], torch.tensor(target, dtype=torch.int64)) == dict.fromkeys(names[1:], reason)


def test_labels_without_any_and_values_of_0_define_no_metric() -> None:
    case = make_case("labels")
    metrics = case.task.metrics()
    case.task.update(metrics, outputs(case)[:2], {name: values[:2] * 0 for name, values in case.batch.items()})
    assert metric_values(metrics)["f1"] == "no row has a label"
    # 0 dollars, encoded in float32 and decoded, are some cents.
    reason = "a value is 0, or a millionth of the largest or less"
    assert missing_values("quantity", ["mape"], torch.tensor([-207_000 / 115_000, 1.0, 2.0])) == {"mape": reason}


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no counts": ({"task.loss": "poisson"}, r"task\.loss is poisson, but the target rich has the encoder binary; encode it with count"),
    "no number": ({"task.loss": "quantiles"}, r"encode it with an encoder of a number, such as standardize"),
    "two classes": ({"task.loss": "ordinal"}, r"encode it with label, for three classes or more"),
    "no order of quantiles": ({"task.quantiles": [0.9, 0.1], "task.loss": "quantiles"}, r"quantiles is \[0\.9, 0\.1\]; name each once"),
    "a quantile of 1": ({"task.quantiles": [1.0], "task.loss": "quantiles"}, r"task\.quantiles\.0.*less than 1"),
    "no such loss": ({"task.loss": "gamma"}, r"task\.loss: must be one of auto, poisson, negative_binomial, quantiles, ordinal"),
    "no such metric": (
        {"task.metrics": ["mape"]},
        r"task\.metrics has mape, which is no further metric of the target rich; name average_pre",
    ),
    "no beta": ({"task.metrics": ["f0"]}, r"task\.metrics has f0"),
    "not measured": (
        {"train.monitor": "f2"},
        r"train\.monitor is f2, but the validation metrics are accuracy, auc, average_precision, loss",
    ),
    "no several numbers": ({"task.target_weights": {"rich": 2.0}}, r"task\.target_weights are weights of several numbers"),
    "no number of that name": (
        {"task.target_weights": {"agee": 2.0}, "dataset.target": {"y": {"encoder": "vector", "columns": ["age", "hours_per_week"]}}},
        r"task\.target_weights: agee is no number of the target, which has age, hours_per_week; did you mean age\?",
    ),
    "no weight at all": (
        {"task.target_weights": {"a": 0.0, "b": 0.0}, "dataset.target": {"y": {"encoder": "vector", "columns": ["a", "b"]}}},
        r"task\.target_weights are all 0",
    ),
    "slices of labels": ({"task.slices": ["sex"], "dataset.target": {"y": "labels"}}, r"pages have no figures; set task\.slices to \[\]"),
    "a loss of labels": ({"task.loss": "poisson", "dataset.target": {"y": "labels"}}, r"task\.loss is poisson, which is for one value"),
    "classes of labels": ({"task.class_weights": "balanced", "dataset.target": {"y": "labels"}}, r"the target y has no classes"),
    "one column": ({"dataset.target": {"y": {"encoder": "vector", "columns": ["a"]}}}, r"dataset\.target\.y.*columns.*at least 2"),
    "a class twice": ({"dataset.target": {"y": {"encoder": "label", "order": ["a", "a"]}}}, r"order names a more than once"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_fit_is_refused_before_any_row_is_read(fault: str) -> None:
    changes, message = FAULTS[fault]
    with pytest.raises(ConfigError, match=message):
        check_task(load("conf/adult.yaml", {"task.slices": [], **changes}))


def refusals(settings: Any, train: pa.Array, rows: pa.Array) -> tuple[list[Any], list[Any]]:
    encoders = fit({"z": "identity"}, {"y": settings}, pa.table({"y": train, "z": [0.0] * len(train)}))
    encoded, reasons = Encoders(encoders).encode(pa.table({"y": rows, "z": [0.0] * len(rows)}))
    return to_numpy(encoders["y"].column, encoded["y"].combine_chunks()).tolist(), reasons.to_pylist()


def test_counts_are_whole_and_at_least_0() -> None:
    values, reasons = refusals("count", pa.array([1.0, 2.0]), pa.array([0.0, 3.0, 2.5, -1.0, math.nan, math.inf, None, 1e9]))
    assert values == [0, 3]
    assert reasons[2:] == [f"y: count cannot encode {text}" for text in ("2.5", "-1.0", "nan", "inf", "NULL", "1000000000.0")]
    with pytest.raises(ConfigError, match="counts are at least 0, and some are more"):
        refusals("count", pa.array([0, 0]), pa.array([0]))


def test_labels_are_those_of_the_training_split() -> None:
    train = pa.array([["b", "a"], ["b"], [], ["b", "c"]])
    rows = pa.array([["c", "b", "b"], [], None, ["new", None, "a"]])
    values, reasons = refusals("labels", train, rows)
    assert values == [[0, 1, 1], [0, 0, 0], [1, 0, 0]] and reasons == [None, None, "y: labels cannot encode NULL", None]
    assert refusals({"encoder": "labels", "min_count": 2}, train, rows)[0] == [[1], [0], [0]]
    assert refusals("labels", pa.array([[10, 9], [9]]), pa.array([[9]]))[0] == [[1, 0]], "whole numbers are sorted as numbers"
    with pytest.raises(ConfigError, match="no label with 9 occurrences"):
        refusals({"encoder": "labels", "min_count": 9}, train, rows)
    with pytest.raises(ConfigError, match=r"labels cannot encode column y, which is string: it takes arrays"):
        refusals("labels", pa.array(["a b"]), rows)


def test_a_row_with_a_missing_number_has_no_vector() -> None:
    raw = pa.table({"a": [1.0, 3.0], "b": [5, 5], "z": [0.0, 0.0]})
    encoders = fit({"z": "identity"}, {"y": {"encoder": "vector", "columns": ["a", "b"]}}, raw)
    encoded, reasons = Encoders(encoders).encode(pa.table({"a": [3.0, None, math.inf], "b": [6, 5, 5], "z": [0.0] * 3}))
    assert to_numpy(encoders["y"].column, encoded["y"].combine_chunks()).tolist() == [[1.0, 1.0]]
    assert reasons.to_pylist()[1:] == ["y: vector cannot encode a NULL, b 5", "y: vector cannot encode a inf, b 5"]


def test_a_label_has_the_order_that_it_names() -> None:
    values, reasons = refusals({"encoder": "label", "order": ["low", "high"]}, pa.array(["high", "low", "odd"]), pa.array(["low", "odd"]))
    assert values == [0] and reasons[1] == "y: label cannot encode odd"
    with pytest.raises(ConfigError, match="none of the classes x in the training split, but high, low; name those in order"):
        refusals({"encoder": "label", "order": ["x"]}, pa.array(["high", "low"]), pa.array(["low"]))
    plain = load("conf/trec.yaml").dataset.target
    assert all("order" not in settings.model_dump(mode="json") for settings in plain.values()), (
        "an order that is not given is no part of an identity"
    )


def test_the_average_of_members_predicts_the_average() -> None:
    for kind in ("poisson", "ordinal", "labels"):
        case = make_case(kind)
        several = torch.randn(ROWS, 5, case.task.outputs, dtype=torch.float64)
        average = case.task.target.average(several)
        assert average.shape == (ROWS, case.task.outputs)
        name = {"poisson": "prediction", "ordinal": "probability_high", "labels": "probability_b"}[kind]
        by_member = [case.task.predict(several[:, member])[name] for member in range(5)]
        np.testing.assert_allclose(case.task.predict(average)[name], np.mean(by_member, axis=0), rtol=1e-9)


def test_an_extreme_output_has_a_finite_loss() -> None:
    case = make_case("ordinal")
    output = torch.tensor([[-300.0, 200.0, -200.0], [300.0, -90.0, 90.0]])
    assert case.task.target.losses(output, torch.tensor([2, 1])).isfinite().all()
    assert isinstance(case.task.metrics()["loss"], Loss)
    counts = make_case("negative_binomial")
    assert counts.task.target.losses(torch.tensor([[0.0, -80.0], [0.0, 80.0]]), torch.tensor([3.0, 3.0])).isfinite().all()


def test_grades_have_an_order() -> None:
    raw = pa.table({"x": [0.0] * 3, "y": ["low", "medium", "high"]})
    settings = TabularSettings(loss="ordinal")
    with pytest.raises(ConfigError, match="the classes of the target y are sorted as text: high, low, medium; name all, the lowest first"):
        Tabular(settings, task_data(fit({"x": "identity"}, {"y": "label"}, raw)))
    numbers = raw.set_column(1, "y", pa.array([2, 10, 1]))
    assert Tabular(settings, task_data(fit({"x": "identity"}, {"y": "label"}, numbers))).target.classes == ("1", "2", "10")
    with pytest.raises(ConfigError, match="sorted as text: 1, 10, 2"):
        Tabular(settings, task_data(fit({"x": "identity"}, {"y": "label"}, numbers.set_column(1, "y", pa.array(["2", "10", "1"])))))

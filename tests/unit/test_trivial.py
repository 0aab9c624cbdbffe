"""Trivial predictors of every task, which a model must beat, against scikit-learn and plain NumPy; and the remarks of a run on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from groups import run_group
from page_parts import render_parts
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, mean_squared_error
from test_forecasting import batch as forecasts
from test_forecasting import task as forecasting
from test_tasks import KINDS, make_batch, make_task
from test_tasks_rows import CASES
from test_values import Points, values
from trainings import characters, open_dataset, training

from pipelines.applications.forecasting.naive_forecasts import RepeatSeason
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import FIRST
from pipelines.report.page_parts import training_charts
from pipelines.report.run_data import RunData
from pipelines.report.run_page import run_page
from pipelines.tasks.base import Batch, Task
from pipelines.tasks.bind import build_task as bound_task
from pipelines.tasks.metrics.table import Value
from pipelines.tasks.tabular import Tabular
from pipelines.tasks.trivial import invert_decoding
from pipelines.tracking.history import History, Point
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.evaluate import baseline_remarks, best_baseline, curve_remarks, fit_trivial_predictors
from pipelines.train.loop import Loop
from pipelines.train.run_context import Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext


def baseline_values(task: Task, train: list[Batch], test: Batch) -> dict[str, float]:
    """The best values of the task's predictors on one batch, fitted on others."""
    predictors = task.trivial_predictors()
    for batch in train:
        for predictor in predictors:
            predictor.fit(batch)
    for predictor in predictors:
        predictor.finish()
    measured = [values(task, [(predictor.output(test), test)]) for predictor in predictors]
    return {name.removeprefix("test/"): value for name, (value, _) in best_baseline(task, predictors, measured, "test").items()}


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_classes_are_predicted_by_their_shares(kind: str) -> None:
    task, test = make_task(kind), make_batch(kind)
    counts = task.data.class_counts
    truth, labels = test["y"].numpy(), np.repeat(np.arange(len(counts)), counts)
    prior = DummyClassifier(strategy="prior").fit(np.zeros((len(labels), 1)), labels)
    blind = np.zeros((len(truth), 1))
    actual = baseline_values(task, [], test)
    assert actual["accuracy"] == pytest.approx(accuracy_score(truth, prior.predict(blind)))
    assert actual["loss"] == pytest.approx(log_loss(truth, prior.predict_proba(blind), labels=range(len(counts))))
    assert actual.get("auc", 0.5) == 0.5


def test_with_class_weights_the_loss_is_that_of_weighted_shares() -> None:
    """Of balanced classes, the best that uses no feature is that of equal shares, whatever the counts."""
    actual = baseline_values(make_task("binary", class_weights="balanced"), [], make_batch("binary"))
    assert actual["loss"] == pytest.approx(np.log(2))


def test_a_class_without_rows_has_a_share_all_the_same() -> None:
    task = make_task("classes")
    empty = Tabular(task.settings, type(task.data)(task.data.columns, task.data.classes, (3, 0, 5)))
    assert np.isfinite(baseline_values(empty, [], make_batch("classes"))["loss"])


@pytest.mark.parametrize("decode", [lambda x: x * 115_000.0 + 207_000.0, np.expm1, lambda x: x])
def test_a_number_is_predicted_by_mean_and_median_in_the_units_of_the_query(decode: Any) -> None:
    task = make_task("quantity")
    train, test = [make_batch("quantity", rows, seed=rows) for rows in (60, 41)], make_batch("quantity")
    task = Tabular(task.settings, type(task.data)(task.data.columns, decode=decode))
    training_values, truth = decode(torch.cat([batch["y"] for batch in train]).double().numpy()), decode(test["y"].double().numpy())
    actual = baseline_values(task, train, test)
    for name, strategy, error in (("mse", "mean", mean_squared_error), ("mae", "median", mean_absolute_error)):
        dummy = DummyRegressor(strategy=strategy).fit(np.zeros((len(training_values), 1)), training_values)
        assert actual[name] == pytest.approx(error(truth, dummy.predict(np.zeros((len(truth), 1)))), rel=1e-6), name
    encoded_values = torch.cat([batch["y"] for batch in train]).double()
    assert actual["loss"] == pytest.approx(float((test["y"] - encoded_values.mean()).square().mean()))
    assert set(actual) == {"rmse", "mse", "r2", "mae", "loss"}


def test_the_encoded_mean_is_sought_where_encoding_is_not_linear() -> None:
    assert np.expm1(invert_decoding(5.0, np.expm1, 0.1, 0.0, 3.0)) == pytest.approx(5.0, rel=1e-14)
    assert invert_decoding(1.0, lambda x: x, 1.0, 1.0, 1.0) == 1.0


def test_a_forecast_repeats_the_last_value_or_the_last_season() -> None:
    task, rows = forecasting(), forecasts(300)
    turns = torch.arange(16) % 5
    pattern = torch.randn(300, 5, 3)[:, turns]
    seasonal = {"past": pattern[:, :12] + 0.01 * rows["past"], "future": pattern[:, 12:]}
    repeat, season = task.trivial_predictors()
    assert isinstance(season, RepeatSeason)
    season.fit(seasonal)
    season.finish()
    assert season.season in (5, 10) and str(season.season) in season.name
    last = seasonal["past"][:, -1:].double().expand(-1, 4, -1)
    assert torch.equal(repeat.output(seasonal), last)
    actual = baseline_values(task, [seasonal], seasonal)
    assert set(actual) == {"mse", "mae"} and actual["mse"] < 0.01 < float((last - seasonal["future"]).square().mean())


def test_the_most_popular_items_come_first() -> None:
    task = CASES["next_item"]()
    target = torch.zeros(3, 12, dtype=torch.int32)
    target[:, -3:] = torch.tensor([[7, 7, 9], [7, 9, 11], [FIRST - 1, 7, 7]])
    batch = {"history": torch.zeros(3, 12, dtype=torch.int32), "next": target}
    (popular,) = task.trivial_predictors()
    popular.fit(batch)
    output = popular.output(batch)
    assert output.shape == (3, 40) and output[0].topk(3).indices.tolist() == [7, 9, 11]
    assert {"hit_rate_10", "ndcg_10", "loss"} == set(baseline_values(task, [batch], batch))


def test_tokens_are_predicted_by_their_frequencies(tmp_path: Path) -> None:
    config = characters(tmp_path, rows=40, task={})
    version = open_dataset(config)
    task = bound_task(config.task, version.manifest)
    (predictor,) = fit_trivial_predictors(task, version, rank=0)
    windows = torch.randint(2, 28, (5, 17), dtype=torch.uint8)
    nats, tokens, _ = predictor.output({"text": windows}).unbind(1)
    counts = predictor.counts  # type: ignore[attr-defined]
    shares = (counts + 1) / (counts.sum() + len(counts))
    assert counts.sum() > 500 and tokens.tolist() == [16] * 5
    assert nats.tolist() == pytest.approx((-np.log(shares[windows[:, 1:].numpy()])).sum(1).tolist())


def test_what_is_not_beaten_is_said() -> None:
    metrics: dict[str, Value] = {"validation/mse": 0.5, "test/mse": 0.4, "validation/auc": "one class", "validation/loss": 0.7}
    baseline = {
        "validation/mse": (0.5, "repeat last value"),
        "test/mse": (0.41, "repeat last 7 steps"),
        "validation/loss": (0.6, "class shares"),
    }
    assert baseline_remarks(metrics, baseline, ("mse", "min"), "mse") == [
        "validation mse 0.5 does not beat the trivial predictor (repeat last value), which has 0.5"
    ]
    assert baseline_remarks(metrics, baseline, ("auc", "max"), "loss") == [
        "validation loss 0.7 does not beat the trivial predictor (class shares), which has 0.6"
    ]
    assert baseline_remarks(metrics, {}, ("mse", "min"), "mse") == []


def run_training(context: WorkerContext, home: Path, task_class: type[Task] | None = None) -> tuple[Trained, dict[str, list[Value]]]:
    """A training whose rate is far too high."""
    config = training(home, shards=4, epochs=2, lr=1.0, monitor="loss", strategy="exact")
    version, hooks = open_dataset(config), Points()
    task = (
        task_class(config.task, bound_task(config.task, version.manifest).data) if task_class else bound_task(config.task, version.manifest)
    )
    checkpoints = Checkpoints(RunDirectory(str(home / f"run-{context.world_size}-{task_class}")), context, 2)
    return Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, hooks).run(), hooks.logged


class Without(Tabular):
    def trivial_predictors(self) -> list[Any]:
        return []


class Failing(Tabular):
    def trivial_predictors(self) -> list[Any]:
        raise RuntimeError("planted")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_every_training_logs_them_and_says_that_it_loses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    training(tmp_path, rows=256)
    alone, logged = run_training(WorkerContext(), tmp_path)
    names = {name for name in logged if name.startswith("baseline/")}
    assert names == {
        f"baseline/{split}/{metric}" for split in ("validation", "test") for metric in ("auc", "average_precision", "accuracy", "loss")
    }
    assert all(len(logged[name]) == 1 for name in names) and logged["baseline/test/auc"] == [0.5]
    assert [line.split(" ")[0] for line in alone.remarks] == ["validation", "test"] and "(class shares)" in alone.remarks[1]
    (first, of_group), (second, _) = run_group(2, tmp_path / "group", run_training, tmp_path)
    assert {name: of_group[name] for name in names} == {name: logged[name] for name in names}, "bitwise"
    assert alone.remarks == first.remarks == second.remarks
    without, logged = run_training(WorkerContext(), tmp_path, Without)
    assert not without.remarks and not any(name.startswith("baseline/") for name in logged)
    assert run_training(WorkerContext(), tmp_path, Failing)[0].finished
    assert "the run has no baseline to compare with: RuntimeError: planted" in caplog.text


def test_the_page_has_them_beside_the_results() -> None:
    curves = {name: (Point(5, 0.0, value),) for name, value in (("test/auc", 0.875), ("baseline/test/auc", 0.5), ("validation/auc", 0.75))}
    curves["baseline/validation/auc"] = (Point(5, 0.0, 0.625),)
    run = History("r" * 32, "toy", "toy", "FINISHED", False, 0.0, 1.0, {}, {}, curves)
    page = run_page(RunData(run, config={}, manifest={}, attempts=[], splits=[], parent=None, samples={}))
    assert page.count("of the trivial predictor") == 2
    values = [page.index(f">{value}<", page.index("of the trivial predictor")) for value in (0.875, 0.5, 0.75, 0.625)]
    assert values == sorted(values), "each beside the model's value of its split"
    assert "baseline" not in render_parts(*(chart.content for chart in training_charts({"": run}))), "one point is no curve"


def test_every_kind_of_target_is_covered() -> None:
    assert all(make_task(kind).trivial_predictors() for kind in KINDS) and all(make().trivial_predictors() for make in CASES.values())


@pytest.mark.parametrize(
    ("curve", "settings", "share"),
    [
        ([0.5, 0.6, 0.7, 0.8], {}, "33 %"),  # it rises as much in each epoch
        ([0.5, 0.8, 0.9, 0.9001], {}, ""),  # it has levelled off
        ([0.5, 0.8, 0.9, 0.92], {"schedule": "one_cycle"}, ""),  # a rate that falls brings so much at any length
        ([0.5, 0.6, 0.7, 0.8], {"schedule": "one_cycle"}, "33 %"),
        ([0.5, 0.6, 0.8, 0.7], {}, ""),  # the best epoch is another
        ([0.5, 0.9], {}, ""),  # no curve
        ([0.5, 0.5, 0.5, 0.5], {}, ""),
    ],
)
def test_a_run_that_still_improves_in_its_last_epochs_says_so(curve: list[float], settings: dict[str, Any], share: str) -> None:
    best = curve.index(max(curve)) + 1
    for sign, direction in ((1, "max"), (-1, "min")):
        lines = curve_remarks([sign * value for value in curve], len(curve), best, Train(**settings), ("auc", direction))
        assert bool(lines) == bool(share) and all(f"last of 4, and the last quarter of them brought {share}" in line for line in lines)
    (line,) = curve_remarks([1.0, 2.0, 3.0, 4.0], 4, 4, Train(epochs=9, max_steps=8), ("auc", "max"))
    assert line.endswith("raise train.max_steps")

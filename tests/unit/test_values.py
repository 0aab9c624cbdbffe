"""A metric that is not defined for its rows says why, and is no number: for every metric, on every way out."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from filed import file_model
from groups import run_group
from shared_models import shared_processes
from test_tasks import make_batch, make_task
from test_tasks_rows import CASES
from trainings import characters, open_dataset, training

from pipelines.config.serving import Registry
from pipelines.data.versions.schema import FIRST
from pipelines.launch.reports import TrackedReports
from pipelines.launch.training_progress import metric_fields, result_summary
from pipelines.monitor.worker_heartbeat import Heartbeat
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.classes import calibration
from pipelines.report.page_parts import class_tables
from pipelines.report.run_data import RunData
from pipelines.report.run_page import run_page
from pipelines.serving.model.logged_model import download_model
from pipelines.serving.registry import gates
from pipelines.serving.registry.champion_comparison import ComparisonTarget
from pipelines.serving.registry.gates import bounds, judge_predictions
from pipelines.tasks.base import Batch, Task
from pipelines.tasks.bind import build_task as bound_task
from pipelines.tasks.metrics.table import NOT_A_NUMBER, Value, metric_values
from pipelines.tasks.targets.base import Determination
from pipelines.tracking.history import History, Point
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop, count_epoch
from pipelines.train.run_context import Hooks, State, Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

Parts = list[tuple[torch.Tensor, Batch]]


def values(task: Task, parts: Parts) -> dict[str, Value]:
    """Measured as an evaluation does it: the metrics of each part, merged."""
    merged, *other_parts = [task.metrics() for _ in parts]
    for metrics, (output, batch) in zip([merged, *other_parts], parts, strict=True):
        task.update(metrics, output, batch)
    for other in other_parts:
        for name, metric in merged.items(copy_state=False):
            metric.merge_state(other[name])
    return metric_values(merged)


def rows(kind: str, target: list[float], output: float | None = None) -> tuple[torch.Tensor, Batch]:
    batch = make_batch(kind, rows=len(target))
    dtype = batch["y"].dtype
    outputs = torch.linspace(-1, 1, len(target))[:, None] if output is None else torch.full((len(target), 1), output)
    return outputs.repeat(1, 3) if kind == "classes" else outputs, {**batch, "y": torch.tensor(target).to(dtype)}


@pytest.mark.parametrize("target", [[0, 0, 0], [1]])
def test_the_auc_of_one_class_is_undefined(target: list[float]) -> None:
    metric_by_name = values(make_task("binary"), [rows("binary", target), rows("binary", target)])
    assert (
        metric_by_name["auc"] == "one class" and isinstance(metric_by_name["accuracy"], float) and isinstance(metric_by_name["loss"], float)
    )


def test_the_auc_of_scores_that_are_nan_is_undefined() -> None:
    metric_by_name = values(make_task("binary"), [rows("binary", [0, 1, 1], torch.nan), rows("binary", [0, 1])])
    assert metric_by_name["auc"] == metric_by_name["loss"] == NOT_A_NUMBER


@pytest.mark.parametrize(
    ("target", "reason"), [([0.1] * 3 + [0.1] * 4, "all values are equal"), ([1e-9 / 3] * 7, "all values are equal"), ([5.0], "one row")]
)
def test_r2_of_a_constant_or_one_row_is_undefined(target: list[float], reason: str) -> None:
    parts = [rows("quantity", target[:3]), rows("quantity", target[3:])]
    metric_by_name = values(make_task("quantity"), parts)
    assert metric_by_name.pop("r2") == reason and all(isinstance(value, float) for value in metric_by_name.values())


def test_r2_of_a_constant_whose_mean_is_rounded_is_undefined() -> None:
    metric = Determination()
    for count in (3, 7, 11):
        metric.update(torch.zeros(count, dtype=torch.float64), torch.full((count,), 0.1, dtype=torch.float64))
    assert metric.missing_reason() and metric.compute().isnan()
    metric.update(torch.zeros(1, dtype=torch.float64), torch.full((1,), 0.2, dtype=torch.float64))
    assert not metric.missing_reason() and metric.compute().isfinite()


def test_a_loss_over_rows_without_weight_is_undefined() -> None:
    task = make_task("binary", class_weights=[1.0, 0.0])
    assert values(task, [rows("binary", [1, 1])])["loss"] == "no row has a weight"


def test_the_loss_of_an_evaluation_has_the_weights_of_training() -> None:
    task = make_task("binary", class_weights=[1.0, 3.0])
    output, batch = rows("binary", [0, 1, 1, 0])
    total, weight = task.loss(lambda _: output, batch)  # type: ignore[arg-type]
    assert values(task, [(output, batch)])["loss"] == pytest.approx(float(total / weight))


@pytest.mark.parametrize("kind", ["binary", "classes", "quantity"])
def test_of_no_rows_nothing_is_defined(kind: str) -> None:
    metric_by_name = values(make_task(kind), [rows(kind, [])])
    assert all(isinstance(value, str) for value in metric_by_name.values()), metric_by_name


def test_a_ranking_without_an_item_to_find_is_undefined() -> None:
    task = CASES["next_item"]()
    promotion_history, target = (torch.zeros(2, 12, dtype=torch.int32) for _ in range(2))
    target[:, -1] = FIRST - 1
    unknown = (torch.zeros(2, 40), {"history": promotion_history, "next": target})
    assert set(values(task, [unknown]).values()) == {"no item of the vocabulary comes next"}
    is_known = (torch.zeros(2, 40), {"history": promotion_history, "next": torch.full_like(target, FIRST)})
    metric_by_name = values(task, [unknown, is_known])
    assert all(isinstance(value, float) for value in metric_by_name.values()), "items that cannot be found count as not found"


def test_a_likelihood_of_no_tokens_is_undefined(tmp_path: Path) -> None:
    config = characters(tmp_path, rows=40, task={})
    task = bound_task(config.task, open_dataset(config).manifest)
    metric_by_name = values(task, [(torch.zeros(2, 3), {})])
    assert metric_by_name == {
        "nats_per_token": "no token to predict",
        "perplexity": "no token to predict",
        "bits_per_byte": "no byte to predict",
    }


def test_the_best_epoch_is_that_of_the_lowest_loss_where_the_monitor_is_undefined() -> None:
    """An AUC of 0 in every epoch would be a tie of all, and early stopping would count from the first."""
    state, best = State(), []
    for loss in (0.5, 0.4, 0.3, 0.35):
        metrics: dict[str, Value] = {"validation/auc": "one class", "validation/loss": loss}
        best.append(count_epoch(state, metrics, ("auc", "max"), "loss"))
    assert best == [True, True, True, False]
    assert (state.best_epoch, state.improved_epoch) == (3, 3)
    assert count_epoch(state, {"validation/auc": 0.1, "validation/loss": 0.9}, ("auc", "max"), "loss"), "a number is better than none"


class Points(Hooks):
    def __init__(self) -> None:
        self.logged: dict[str, list[Value]] = {}

    def log(self, step: int, metrics: Any) -> None:
        for name, value in metrics.items():
            self.logged.setdefault(name, []).append(value)


def fit(context: WorkerContext, home: Path) -> tuple[Trained, dict[str, list[Value]]]:
    config = training(home, shards=4, epochs=4, strategy="exact", early_stopping=2)
    version, hooks = open_dataset(config), Points()
    task = bound_task(config.task, version.manifest)
    checkpoints = Checkpoints(RunDirectory(str(home / f"run-{context.world_size}")), context, 2)
    return Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, hooks).run(), hooks.logged


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_training_on_a_validation_split_of_one_class(tmp_path: Path) -> None:
    training(tmp_path, rows=256, one_class=("validation", "test"))
    alone, logged = fit(WorkerContext(), tmp_path)
    losses = logged["validation/loss"]
    assert logged["validation/auc"] == ["one class"] * len(losses) and len(losses) > 1
    assert alone.best_epoch == 1 + int(np.argmin(losses))
    assert alone.metrics["validation/auc"] == alone.metrics["test/auc"] == "one class"
    assert alone.remarks[0] == "validation auc is undefined: one class; so the best epoch is that of the lowest loss"
    (of_first, _), (of_second, _) = run_group(2, tmp_path / "group", fit, tmp_path)
    assert alone.metrics == of_first.metrics == of_second.metrics and alone.best_epoch == of_first.best_epoch


METRICS: dict[str, Value] = {"validation/auc": "one class", "validation/loss": 0.25, "test/auc": "one class", "test/loss": 0.5}


def test_mlflow_gets_numbers_only(tmp_path: Path) -> None:
    folder, sender, gauges = RunDirectory(str(tmp_path)), Mock(), Mock()
    reports = TrackedReports(folder, Heartbeat(folder, WorkerContext(), 10), sender, gauges, 100, 3)
    reports.log(7, METRICS)
    reports.close()
    sender.log.assert_called_once_with(7, {"validation/loss": 0.25, "test/loss": 0.5})


def test_the_terminal_says_why() -> None:
    trained = {"rows": 10, "steps": 5, "seconds": 1.0, "best_epoch": 1, "epochs": 2, "metrics": METRICS, "remarks": ["so it is"]}
    lines = result_summary("r", "e", "u", trained, "m").splitlines()
    assert "best epoch, 1 of 2: validation auc undefined: one class, loss 0.25" in lines and lines[-1] == "so it is"
    assert metric_fields(METRICS)["undefined"] == {"validation/auc": "one class", "test/auc": "one class"}
    assert json.loads(json.dumps(metric_fields(METRICS), allow_nan=False))["metrics"] == {"validation/loss": 0.25, "test/loss": 0.5}


def material() -> RunData:
    tags = {"lockstep.undefined": json.dumps({"validation/auc": "one class", "test/auc": "one class"}), "lockstep.remarks": "first\nsecond"}
    curves = {name: (Point(5, 0.0, value),) for name, value in METRICS.items() if isinstance(value, float)}
    run = History("r" * 32, "toy", "toy", "FINISHED", False, 0.0, 1.0, tags, {}, curves)
    splits = [SplitEvaluation("validation", {"kind": "own", "metrics": {"auc": "one class", "loss": 0.25}}, {})]
    return RunData(run, config={}, manifest={}, attempts=[], splits=splits, parent=None, samples={})


def test_the_page_says_why() -> None:
    page = run_page(material())
    assert page.count("undefined: one class") == 4, "a tile, and three columns of the results"
    assert "first" in page and "second" in page


def test_a_class_that_is_never_predicted_has_no_precision() -> None:
    table = {"class": ["a", "b", "c"], "rows": [3, 2, 0], "predicted": [4, 0, 1], "correct": [3, 0, 0]}
    (classes,) = class_tables([SplitEvaluation("test", {}, {"classes": table})])
    cells = [cell for row in classes.rows for cell in row]
    assert cells.count("undefined: never predicted") == 1 and cells.count("undefined: no row") == 1


def test_a_calibration_of_one_bin_is_undefined() -> None:
    table = {"rows": [7], "confidence": [0.5], "happened": [0.4]}
    with pytest.raises(UndefinedError, match="all rows are in one bin"):
        calibration(SplitEvaluation("test", {"kind": "classes"}, {"calibration": table}))


def test_a_gate_of_an_undefined_metric_does_not_hold_and_says_why() -> None:
    (gate,) = bounds(Registry(at_most={"auc": 0.5}), {"test/loss": 0.4}, {"test/auc": "one class"})
    assert not gate.holds and str(gate) == "test/auc is undefined: one class, and at most 0.5 is wanted"


def test_models_are_not_compared_by_an_undefined_metric(tmp_path: Path) -> None:
    served = file_model(tmp_path)
    model = download_model(served.config.tracking.uri, served.uri, tmp_path / "model")
    raw = served.raw.filter(served.raw["rich"])
    settings = Registry(slices=("word",), slice_bound=0.5, slice_rows=5)
    target = ComparisonTarget("auc", "rich", served.manifest, ("false", "true"))
    with shared_processes() as processes, processes.within(gates):
        metric_by_name = judge_predictions(settings, target, raw, None, model, model)
    (gate,) = metric_by_name.conditions
    assert not gate.holds and "is undefined: one class, and a comparison with the champion" in str(gate)
    assert metric_by_name.numbers["auc"] == "undefined: one class" and json.dumps(metric_by_name.numbers, allow_nan=False)

"""Which of two runs is better: by how much, and whether that is chance; and the page that says it."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chromium import GOOD, seen

from pipelines.applications.recommendation.next_item import NextItem
from pipelines.applications.recommendation.settings import NextItemSettings
from pipelines.config.tasks.task import TabularSettings
from pipelines.data.versions.schema import FIRST, ROW_NUMBERS, TensorColumn
from pipelines.ranking import roc_area_influences
from pipelines.report.comparison import comparison_page, influences, metric_difference
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.run_data import RunData, TrainingAttempt
from pipelines.report.run_page import run_page
from pipelines.tasks import tabular
from pipelines.tasks.base import Data
from pipelines.tasks.details import ClassDetails
from pipelines.tasks.supervised import target_kind
from pipelines.tracking.history import History, Point

X = TensorColumn(name="x", dtype="float32")
RICH = TensorColumn(name="rich", dtype="uint8", cardinality=2, role="target")
DATA = Data((X, RICH), ("poor", "rich"))
RANDOM = np.random.default_rng(4)
ROWS = 2_000
TRUE = RANDOM.random(ROWS) < 0.3
SIGNAL = RANDOM.standard_normal(ROWS) + TRUE


def outputs(noise: float, seed: int) -> np.ndarray:
    return (SIGNAL + noise * np.random.default_rng(seed).standard_normal(ROWS) - 1)[:, None]


def evaluate(logits: np.ndarray, name: str = "test") -> SplitEvaluation:
    """Evaluation of a model with these outputs."""
    details, target = ClassDetails(TabularSettings(), DATA, target_kind(DATA)), target_kind(DATA)
    rows = {ROW_NUMBERS: torch.arange(ROWS), "x": torch.from_numpy(SIGNAL).float(), "rich": torch.from_numpy(TRUE).to(torch.uint8)}
    details.update(torch.from_numpy(logits), rows)
    metrics = target.metrics()
    target.update(metrics, torch.from_numpy(logits), rows["rich"])
    metrics["loss"].update(torch.full((ROWS,), 0.5), torch.ones(ROWS))
    values = {key: float(value) for key, value in metrics.compute().items()}
    evaluation = details.result(name, values, tabular.Tabular(TabularSettings(), DATA).describe_metrics(""))
    return SplitEvaluation(name, evaluation.summary, evaluation.tables)


def trained_run(logits: np.ndarray, number: int, **changes: Any) -> RunData:
    """A run of three epochs, whose best one was the second."""
    test, validation = evaluate(logits), evaluate(logits, "validation")
    auc = float(test.summary["metrics"]["auc"])
    curves: dict[str, list[tuple[int, float, float]]] = {
        "train/loss": [(step, 1_000.0 + step, 1 / step) for step in range(10, 61, 10)],
        "validation/auc": [(20, 1_020.0, 0.5), (40, 1_040.0, auc), (60, 1_060.0, 0.1234)],
        "validation/epoch": [(20, 1_020.0, 1.0), (40, 1_040.0, 2.0), (60, 1_060.0, 3.0)],
        "test/auc": [(60, 1_070.0, auc)],
        "test/accuracy": [(60, 1_070.0, float(test.summary["metrics"]["accuracy"]))],
    }
    points = {name: tuple(Point(*point) for point in points_of_curve) for name, points_of_curve in curves.items()}
    tags = {"dataset.digest": "d" * 64, "mlflow.lockstep.identity": "1", **changes.pop("tags", {})}
    run = History(f"{number}" * 32, f"run {number}", "toys", "FINISHED", False, 1_000.0, 1_080.0, tags, {}, points)
    config = {"task": {"kind": "tabular"}, "train": {"lr": number / 10, "workers": 2}, "dataset": {"path": "data", "target": {"rich": {}}}}
    attempts = [TrainingAttempt(1_000.0, 0, 2, ended=1_062.0, steps=60)]
    return replace(RunData(run, config, {}, attempts, [test, validation], None, {}), **changes)


def test_the_interval_of_an_roc_area_is_that_of_resampled_rows() -> None:
    """The spread of the difference over bootstrap samples of the rows, which takes a thousand times longer."""
    from sklearn.metrics import roc_auc_score

    first, other = outputs(0.5, 1), outputs(0.8, 2)
    measured = metric_difference("auc", evaluate(first), evaluate(other))
    assert measured and measured.value == pytest.approx(roc_auc_score(TRUE, first) - roc_auc_score(TRUE, other), abs=1e-6)
    samples = [RANDOM.integers(0, ROWS, ROWS) for _ in range(400)]
    differences = [roc_auc_score(TRUE[rows], first[rows]) - roc_auc_score(TRUE[rows], other[rows]) for rows in samples]
    assert (measured.high - measured.low) / 2 / 1.96 == pytest.approx(np.std(differences), rel=0.15)


def test_a_score_that_is_not_a_number_gives_no_interval() -> None:
    positive = np.array([1.0, 0.0, 1.0, 0.0])
    assert np.isnan(roc_area_influences(np.array([0.9, np.nan, 0.8, 0.1]), positive)).all()
    assert np.isfinite(roc_area_influences(np.array([0.9, 0.2, 0.8, 0.1]), positive)).all()


@pytest.mark.parametrize(
    ("metric", "columns", "of_sample"),
    [
        ("accuracy", {"accuracy": RANDOM.random(ROWS) < 0.8}, lambda rows: rows["accuracy"].mean()),
        ("rmse", {"mse": RANDOM.standard_normal(ROWS) ** 2}, lambda rows: np.sqrt(rows["mse"].mean())),
        (
            "nats_per_token",
            {"nats": RANDOM.gamma(9, 3, ROWS), "tokens": RANDOM.integers(5, 40, ROWS)},
            lambda rows: rows["nats"].sum() / rows["tokens"].sum(),
        ),
        (
            "perplexity",
            {"nats": RANDOM.gamma(9, 3, ROWS), "tokens": RANDOM.integers(5, 40, ROWS)},
            lambda rows: np.exp(rows["nats"].sum() / rows["tokens"].sum()),
        ),
    ],
)
def test_the_spread_of_influences_is_that_of_the_metric_over_samples_of_rows(
    metric: str, columns: Mapping[str, Any], of_sample: Any
) -> None:
    row_influences = influences(metric, {name: values.astype(float) for name, values in columns.items()})
    assert row_influences is not None
    samples = (RANDOM.integers(0, ROWS, ROWS) for _ in range(600))
    metrics = [of_sample({name: values[rows].astype(float) for name, values in columns.items()}) for rows in samples]
    assert np.std(row_influences) / np.sqrt(ROWS) == pytest.approx(np.std(metrics), rel=0.12)


ITEMS = 60
HISTORY = TensorColumn(name="before", dtype="int32", shape=(4,), cardinality=FIRST + ITEMS)
NEXT = replace(HISTORY, name="after", role="target")


def next_item_split(noise: float, seed: int) -> SplitEvaluation:
    """Evaluation of a model that ranks items with this noise; of one row in ten, the item is not in the vocabulary."""
    task, random = NextItem(NextItemSettings(evaluation_negatives=20), Data((HISTORY, NEXT))), np.random.default_rng(7)
    items = random.integers(FIRST, FIRST + ITEMS, (ROWS, 4))
    after = np.where(np.arange(ROWS)[:, None] % 10 == 0, FIRST - 1, np.roll(items, 1, axis=1))
    scores = noise * np.random.default_rng(seed).standard_normal((ROWS, FIRST + ITEMS))
    scores[np.arange(ROWS), after[:, -1]] += 1.0
    rows = {name: torch.from_numpy(values.astype("int32")) for name, values in (("before", items), ("after", after))}
    output, metrics, details = torch.from_numpy(scores).float(), task.metrics(), task.details()
    for part in np.array_split(np.arange(ROWS), 3):
        batch = {ROW_NUMBERS: torch.from_numpy(part), **{name: values[part] for name, values in rows.items()}}
        details.update(output[part], batch)
        task.update(metrics, output[part], batch)
    values = {name: float(value) for name, value in metrics.compute().items()}
    evaluation = details.result("test", values, task.describe_metrics(""))
    return SplitEvaluation("test", evaluation.summary, evaluation.tables)


@pytest.mark.parametrize("metric", ["ndcg_10", "hit_rate_10", "loss"])
def test_of_next_items_the_better_model_is_told_from_chance(metric: str) -> None:
    good, bad, alike = next_item_split(0.6, 1), next_item_split(1.2, 2), next_item_split(0.6, 3)
    for split in (good, bad):
        outcomes = split.tables["outcomes"]
        weights = outcomes["known"] if metric == "loss" else [1.0] * ROWS
        mean = sum(outcomes["cross_entropy" if metric == "loss" else metric]) / sum(weights)
        assert mean == pytest.approx(split.summary["metrics"][metric], rel=1e-6), "the interval is around the metric's own value"
    measured, chance = metric_difference(metric, good, bad), metric_difference(metric, good, alike)
    assert measured and chance and measured.is_beyond_chance and not chance.is_beyond_chance
    assert (measured.value > 0) == (metric != "loss") and 0 < measured.high - measured.low < abs(measured.value)


def test_of_models_that_differ_by_chance_few_differences_are_called_real() -> None:
    """Models with the same noise: in 95 of 100 cases the interval holds 0."""
    real = [metric_difference("auc", evaluate(outputs(0.5, seed)), evaluate(outputs(0.5, 1_000 + seed))) for seed in range(40)]
    assert sum(bool(measured and measured.is_beyond_chance) for measured in real) <= 6
    narrow, wide = (metric_difference("auc", evaluate(outputs(0.5, 1)), evaluate(outputs(0.8, 2)), count) for count in (1, 6))
    assert narrow and wide and wide.high - wide.low > narrow.high - narrow.low


def test_the_page_says_which_run_is_better_and_whether_that_is_chance() -> None:
    better, worse, alike = trained_run(outputs(0.5, 1), 1), trained_run(outputs(0.9, 2), 2), trained_run(outputs(0.5, 3), 3)
    page = comparison_page([worse, better])
    assert re.search(
        r"B is better than A: test auc 0\.\d+ against 0\.\d+, by 0\.\d+ \(95 % interval 0\.\d+ to 0\.\d+, on the same 2,000 rows\)", page
    )
    assert "): beyond chance." in page and "DeLong" in page
    close = comparison_page([better, alike])
    assert "but by no more than chance may give: test auc" in close and "is better than" not in close
    assert ": equal" in comparison_page([better, better]) or "A and B are equal" in comparison_page([better, better])
    elsewhere = replace(worse, run=replace(worse.run, tags={**worse.run.tags, "dataset.digest": "e" * 64}))
    assert "on other rows (datasets dddddddddddd and eeeeeeeeeeee)" in comparison_page([better, elsewhere])
    old = replace(worse, splits=[replace(worse.splits[0], tables={}), worse.splits[1]])
    assert "does not tell whether that is chance" in comparison_page([better, old])
    assert "none can be said to be better" in comparison_page([replace(worse, splits=[]), better])


def test_results_are_those_of_the_best_epoch_and_figures_stand_beside_each_other() -> None:
    runs = [trained_run(outputs(0.5, 1), 1), trained_run(outputs(0.9, 2), 2)]
    page = comparison_page(runs)
    assert "0.1234" not in page, "the last epoch's"
    validation = [text[:6] for text in re.findall(r"<td>validation/auc</td>(.*?)</tr>", page)]
    assert validation and page.count("<b>0.") >= 2, "the better value of each metric is in bold"
    captions = re.findall(r"<b>([AB])</b>: (\w+)", page)
    assert captions[:4] == [("A", "Confusion"), ("B", "Confusion"), ("A", "ROC"), ("B", "ROC")]
    assert "<td>steps</td><td>60</td><td>60</td>" in page
    assert page.count("0.03444") == 2 and "0.03444" in run_page(runs[0]), "worker hours, one number in all places"


def baseline_run(logits: np.ndarray) -> RunData:
    run_data = trained_run(logits, 9, tags={"mlflow.lockstep.kind": "baseline"}, attempts=[])
    points = {name: (values[-1],) for name, values in run_data.run.curves.items() if name.startswith("test/")}
    parameters = {"model": "LogisticRegression", "regularisation": "0.01"}
    return replace(run_data, run=replace(run_data.run, curves=points, params=parameters))


def test_a_baseline_is_compared_and_shown_like_other_runs() -> None:
    trained, baseline = trained_run(outputs(0.5, 1), 1), baseline_run(outputs(0.7, 5))
    compared = comparison_page([baseline, trained])
    assert "B is better than A: test auc" in compared and "LogisticRegression of Spark ML" in compared
    assert "train.lr" not in compared, "which decides nothing of a baseline"
    both = comparison_page([trained, trained_run(outputs(0.5, 1), 2), baseline])
    assert "<td>train.lr</td><td>0.1</td><td>0.2</td><td>–</td>" in both and "train.workers" not in both
    page = run_page(baseline)
    assert "LogisticRegression of Spark ML, a baseline" in page and "ROC: area" in page and "Most wrong rows" in page
    assert "best epoch" not in page and "last validation" not in page
    assert "no points" not in page and "random weights" not in page and "worker hours" not in page and ">steps<" not in page


def test_a_comparison_fits_a_telephone_and_no_word_breaks_inside(tmp_path: Path) -> None:
    runs = [trained_run(outputs(0.5, 1), 1), trained_run(outputs(0.9, 2), 2), baseline_run(outputs(0.7, 5))]
    for name, page in (("compared", comparison_page(runs)), ("run", run_page(runs[0])), ("baseline", run_page(runs[2]))):
        (tmp_path / f"{name}.html").write_text(page)
        assert seen(tmp_path / f"{name}.html") == GOOD, name

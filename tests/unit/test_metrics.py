"""The table of metrics agrees with the tasks that compute them, and areas under curves are scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from task_cases import CASES, create_task, random_batch

from pipelines.data.versions.schema import ROW_NUMBERS
from pipelines.ranking import average_precision, roc_area
from pipelines.report.comparison import influences
from pipelines.tasks.metrics.table import METRICS, prediction_metrics

OF_ALL_ROWS = {"r2", "repeat_last_mse", "repeat_last_mae", "iou", "pooled_dice", "map", "map_50"}
"""Metrics that are no mean over rows, or of a baseline."""
OF_A_CLASS = ("dice_", "iou_", "map_50_")


@pytest.mark.parametrize("name", CASES)
def test_a_metric_has_one_direction_in_its_task_and_in_the_table(name: str) -> None:
    task = create_task(name)
    better = task.describe_metrics("")["better"]
    words = {"max": "higher", "min": "lower"}
    assert {name: words[METRICS[name].direction] for name in better if name in METRICS}.items() <= better.items()
    metric, direction = task.monitor
    assert better[metric] == words[direction]
    assert task.metrics()[metric].higher_is_better in (None, direction == "max")


@pytest.mark.parametrize("name", CASES)
def test_outcomes_of_rows_have_what_the_comparison_of_a_metric_needs(name: str) -> None:
    task, rows = create_task(name), 40
    batch = {**random_batch(task, rows), ROW_NUMBERS: torch.arange(rows)}
    model, details = task.model().eval(), task.details()
    assert details is not None
    with torch.no_grad():
        details.update(model(batch), batch)
    columns = {column: values.astype(float) for column, values in details.outcomes.columns.items()}
    for metric in {str(metric) for metric in task.metrics() if not str(metric).startswith(OF_A_CLASS)} - OF_ALL_ROWS:
        influence = influences(str(metric), columns)
        assert influence is not None and len(influence) == rows, metric


def test_gates_measure_again_what_follows_from_predictions() -> None:
    assert prediction_metrics("two classes") == ("auc", "accuracy", "loss")
    assert prediction_metrics("classes") == ("accuracy", "loss")
    assert prediction_metrics("quantity") == ("rmse", "mae", "mse")


@pytest.mark.parametrize("ties", [1, 50])
def test_areas_from_counts_are_those_of_the_rows(ties: int) -> None:
    random = np.random.default_rng(ties)
    is_positive = random.random(2_000) < 0.3
    scores = np.round((random.normal(size=2_000) + is_positive) * 1_000 / ties)
    weights = random.integers(0, 3, 2_000)
    _, places = np.unique(-scores, return_inverse=True)
    positives, negatives = (np.bincount(places, weights * kind) for kind in (is_positive, ~is_positive))
    assert roc_area(positives, negatives) == pytest.approx(roc_auc_score(is_positive, scores, sample_weight=weights), abs=1e-14)
    precision = average_precision_score(is_positive, scores, sample_weight=weights)
    used = positives + negatives > 0  # a score without rows has no precision
    assert average_precision(positives[used], negatives[used]) == pytest.approx(precision, abs=1e-14)


def test_areas_without_rows_of_a_class_are_not_numbers() -> None:
    no_rows, rows = np.zeros(2, np.int64), np.array([1, 2])
    assert np.isnan(roc_area(no_rows, rows)) and np.isnan(roc_area(rows, no_rows)) and np.isnan(average_precision(no_rows, rows))
    assert average_precision(rows, no_rows) == 1.0

"""Two classes are decided by calibrated probabilities and a threshold, which are fitted on validation and kept with the model."""

import json
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from groups import run_group
from sklearn.metrics import matthews_corrcoef
from trainings import open_dataset, training

from pipelines.tasks.answers import find_answer
from pipelines.tasks.bind import build_task
from pipelines.tasks.targets.decision import Decision, choose_threshold, describe_decision, fit_decision
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def scores(rows: int = 20_000, shift: float = -4.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and classes that have these probabilities."""
    random = np.random.default_rng(seed)
    logits = 2 * random.normal(size=rows) + shift
    return logits, random.random(rows) < sigmoid(logits)


def test_probabilities_that_weights_of_classes_have_raised_are_calibrated() -> None:
    """Of a class of some 3 %, whose odds a loss with balanced weights multiplies by thirty."""
    logits, is_second = scores()
    raised = sigmoid(logits + log(30))
    decision = fit_decision(raised, is_second)
    assert raised.mean() > 5 * is_second.mean()
    calibrated = torch.sigmoid(decision.calibrate(torch.from_numpy(logits + log(30)))).numpy()
    assert calibrated.mean() == pytest.approx(is_second.mean(), rel=0.01)
    assert (decision.scale, decision.shift) == pytest.approx((1, -log(30)), abs=0.15)


def test_right_probabilities_and_those_of_few_rows_stay_as_they_are() -> None:
    logits, is_second = scores()
    assert not fit_decision(sigmoid(logits), is_second).is_calibrated
    tables = [scores(60, 0.0, seed) for seed in range(100)]
    assert sum(fit_decision(sigmoid(few), classes).is_calibrated for few, classes in tables) < 5, "chance is no reason"


def test_the_threshold_finds_more_of_a_rare_class_at_hardly_any_accuracy() -> None:
    logits, is_second = scores()
    unseen, truth = scores(seed=1)
    decision = fit_decision(sigmoid(logits), is_second)
    assert 0.1 < decision.threshold < 0.45
    decided, more_probable = sigmoid(unseen) > decision.threshold, unseen > 0
    assert matthews_corrcoef(truth, decided) > matthews_corrcoef(truth, more_probable)
    assert (decided & truth).sum() > 1.2 * (more_probable & truth).sum()
    assert (decided == truth).mean() > (more_probable == truth).mean() - 0.006


def test_the_classes_are_treated_alike() -> None:
    logits, is_second = scores()
    decision, opposite = fit_decision(sigmoid(logits), is_second), fit_decision(sigmoid(-logits), ~is_second)
    assert opposite.threshold == pytest.approx(1 - decision.threshold, abs=1e-3)


def test_features_that_say_nothing_lead_to_no_guesses() -> None:
    """Without the bound on accuracy, half of the rows would be said to have a class of 2 %."""
    probabilities = np.sort(np.random.default_rng(0).uniform(0.015, 0.025, 5_000))
    assert (probabilities > choose_threshold(probabilities)).mean() < 0.01


def test_weights_of_classes_decide_the_threshold() -> None:
    logits, is_second = scores()
    assert fit_decision(sigmoid(logits), is_second, (1.0, 9.0)).threshold == pytest.approx(0.1)


@pytest.mark.parametrize("classes", [[True] * 4, [False] * 4, [True, False, True, False]])
def test_without_two_classes_or_different_scores_the_more_probable_class_is_taken(classes: list[bool]) -> None:
    assert fit_decision(np.full(4, 0.3), np.array(classes)) == Decision()
    assert fit_decision(np.array([0.1, np.nan, 0.2, 0.3]), np.array(classes)) == Decision()
    assert Decision().to_values() == {}


def test_the_order_of_rows_changes_no_bit() -> None:
    logits, is_second = scores(3_000)
    order = np.random.default_rng(5).permutation(len(logits))
    assert fit_decision(sigmoid(logits + 1), is_second) == fit_decision(sigmoid(logits + 1)[order], is_second[order])


def test_separable_classes_and_certain_scores_have_a_finite_decision() -> None:
    decision = fit_decision(np.array([0.0] * 50 + [1.0] * 50), np.array([False] * 50 + [True] * 50))
    assert all(np.isfinite(list(decision.to_values().values())))
    assert decision.scale > 0 and 0 < decision.threshold < 1


def test_a_decision_is_described() -> None:
    values = {"scale": 0.9, "shift": -2.0, "threshold": 0.3124, "error": 0.012, "error_before": 0.21}
    assert describe_decision(values, "left") == (
        "left is predicted above a probability of 0.312, chosen on validation for the correlation of predictions and classes; "
        "probabilities are calibrated on validation: expected calibration error 0.0120, 0.2100 before"
    )
    weighed = describe_decision(Decision(threshold=0.1).to_values(), has_weights=True)
    assert "by task.class_weights; probabilities are the model's own" in weighed


def train_with_weights(context: WorkerContext, home: Path) -> Trained:
    """A training whose second class has nine times the weight of the first, so that its probabilities are too high."""
    config = training(home, shards=4, epochs=2, strategy="exact", task={"class_weights": [0.2, 1.8]})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    checkpoints = Checkpoints(RunDirectory(str(home / f"run-{context.world_size}")), context, 2)
    return Loop(config, version, task, create_strategy(config.train, task, context), checkpoints, Hooks()).run()


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_training_fits_the_same_decision_on_any_number_of_workers(tmp_path: Path) -> None:
    alone = train_with_weights(WorkerContext(), tmp_path)
    assert alone.decision["shift"] < -1 and alone.decision["threshold"] == pytest.approx(0.1)
    first, second = run_group(2, tmp_path / "group", train_with_weights, tmp_path)
    assert (first.decision, first.metrics) == (second.decision, second.metrics) == (alone.decision, alone.metrics), "bitwise"


def test_metrics_predictions_and_exports_follow_the_decision(tmp_path: Path) -> None:
    config = training(tmp_path)
    manifest = open_dataset(config).manifest
    decision = Decision(0.5, -1.0, 0.3)
    plain, decided = build_task(config.task, manifest), build_task(config.task, manifest, decision.to_values())
    outputs = torch.linspace(-6, 6, 41, dtype=torch.float64)[:, None]
    probabilities = sigmoid(0.5 * outputs[:, 0].numpy() - 1)
    predicted = decided.predict(outputs)
    name, (first_class, second_class) = list(predicted)[-1], [column.removeprefix("probability_") for column in list(predicted)[1:]]
    np.testing.assert_allclose(predicted[name], probabilities, rtol=1e-12)
    assert predicted["prediction"] == [second_class if value > 0.3 else first_class for value in probabilities]
    form = json.loads(json.dumps(decided.prediction_form()))
    assert find_answer(form)(outputs.numpy(), form, np.asarray) == predicted
    calibrated = decided.target.probabilities(outputs)[:, 1]
    np.testing.assert_allclose(predicted[name], calibrated, rtol=1e-12, err_msg="metrics are those of the probabilities that are predicted")
    batch = {"label": torch.from_numpy((probabilities > 0.5).astype(np.uint8))}
    accuracies = []
    for task in (plain, decided):
        metrics = task.metrics()
        task.update(metrics, outputs, batch)
        accuracies.append(float(metrics.compute()["accuracy"]))
    assert accuracies[1] == ((probabilities > 0.3) == (probabilities > 0.5)).mean() != accuracies[0]
    assert plain.prediction_form().keys() == {"form", "classes"}, "a model that was logged without a decision has none"

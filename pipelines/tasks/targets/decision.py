"""How a model of two classes decides: probabilities that are calibrated on the validation split, and the threshold above which the second
class is predicted.

A model that is trained on few rows of a class, with weights of classes or with smoothed labels predicts probabilities that are too high or
too low, and the more probable class is hardly ever the rare one. Both are mended after training, so the weights do not depend on it.
Everything is computed from the sorted scores of the split, so it is the same for any number of workers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import log
from typing import Any

import numpy as np
from torch import Tensor

from pipelines.tasks.answers import sigmoid

MOST_ACCURACY_LOST = 0.005
"""Expected share of the rows that a threshold may decide wrongly beyond those that the more probable class decides wrongly."""
_LARGEST_LOGIT = 36.0
"""A probability nearer to 0 or 1 is rounded to one of them in float64."""
_NEWTON_STEPS = 50


@dataclass(frozen=True)
class Decision:
    """A logit is calibrated as `scale · logit + shift`; the second class is predicted if its probability is above the `threshold`."""

    scale: float = 1.0
    shift: float = 0.0
    threshold: float = 0.5

    @property
    def is_calibrated(self) -> bool:
        return (self.scale, self.shift) != (1.0, 0.0)

    def calibrate(self, logits: Tensor) -> Tensor:
        return logits * self.scale + self.shift if self.is_calibrated else logits

    def to_values(self) -> dict[str, float]:
        """The fields by name; none if it only takes the more probable class, as models without a decision do."""
        return asdict(self) if self != Decision() else {}


def fit_decision(probabilities: np.ndarray, is_second: np.ndarray, class_weights: Sequence[float] = ()) -> Decision:
    """Fit the decision on rows: the model's probability of the second class, and whether the row has it, both of shape (rows,).

    With `class_weights`, an error costs as much as the weight of the row's class. Without rows of both classes, or with a probability that
    is NaN, the decision is the more probable class.
    """
    if not 0 < is_second.sum() < len(is_second) or np.isnan(probabilities).any():
        return Decision()
    with np.errstate(divide="ignore"):
        logits = (np.log(probabilities) - np.log1p(-probabilities)).clip(-_LARGEST_LOGIT, _LARGEST_LOGIT)
    order = np.lexsort((is_second, logits))
    logits, is_second = logits[order], is_second[order]
    scale, shift = _calibration(logits, is_second)
    if class_weights:
        first, second = class_weights
        threshold = min(max(first / (first + second), 1e-9), 1 - 1e-9)
    else:
        threshold = choose_threshold(sigmoid(logits * scale + shift))
    return Decision(scale, shift, threshold)


def _calibration(logits: np.ndarray, is_second: np.ndarray) -> tuple[float, float]:
    """Scale and shift of the logits by Platt's method (Platt 1999, "Probabilistic outputs for support vector machines"), with his targets,
    which keep separable classes finite; 1 and 0 unless they lower the loss of the rows by more than the Bayesian information criterion
    asks for two parameters (Schwarz 1978): what few rows say by chance is no calibration."""
    rows, positives = len(logits), float(is_second.sum())
    targets = np.where(is_second, (positives + 1) / (positives + 2), 1 / (rows - positives + 2))
    scale, shift = 1.0, 0.0
    for _ in range(_NEWTON_STEPS):
        probabilities = sigmoid(scale * logits + shift)
        gradient = probabilities - targets
        curvature = probabilities * (1 - probabilities) + 1e-12
        by_scale, by_shift = (gradient * logits).sum(), gradient.sum()
        second_derivatives = (curvature * logits * logits).sum(), (curvature * logits).sum(), curvature.sum()
        determinant = second_derivatives[0] * second_derivatives[2] - second_derivatives[1] ** 2
        if not determinant > 1e-9 * second_derivatives[0] * second_derivatives[2]:
            return 1.0, 0.0  # all scores are equal
        steps = np.array([
            (second_derivatives[2] * by_scale - second_derivatives[1] * by_shift) / determinant,
            (second_derivatives[0] * by_shift - second_derivatives[1] * by_scale) / determinant,
        ])  # fmt: skip
        steps = steps / max(1.0, float(np.abs(steps).max()))  # far from the minimum, a whole step may lead away
        scale, shift = scale - float(steps[0]), shift - float(steps[1])
        if np.abs(steps).max() < 1e-10:
            break
    gain = _loss(logits, is_second) - _loss(scale * logits + shift, is_second)
    is_better = scale > 0 and np.isfinite(gain) and gain > log(rows)
    return (scale, shift) if is_better else (1.0, 0.0)


def _loss(logits: np.ndarray, is_second: np.ndarray) -> float:
    return float(np.logaddexp(0, np.where(is_second, -logits, logits)).sum())


def choose_threshold(probabilities: np.ndarray) -> float:
    """The threshold with the largest expected correlation of decisions and classes (Matthews 1975), of those that are expected to decide at
    most MOST_ACCURACY_LOST more of the rows wrongly than 0.5.

    The correlation treats both classes alike, whichever is rare. What is expected follows from calibrated `probabilities`, ascending and of
    shape (rows,), and not from the classes of a few rows (Koyejo et al. 2014, "Consistent binary classification with generalized
    performance metrics").
    """
    descending = probabilities[::-1]
    rows, total = len(descending), float(descending.sum())
    count = np.arange(1, rows)
    right = np.cumsum(descending)[:-1]
    """The expected number of rows of the second class among the first `count`, which are decided to have it."""
    right_rows = right + (rows - count) - (total - right)
    most_right = float(np.maximum(descending, 1 - descending).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = (right * rows - count * total) / np.sqrt(count * (rows - count) * total * (rows - total))
    is_threshold = (descending[:-1] > descending[1:]) & (right_rows >= most_right - MOST_ACCURACY_LOST * rows) & np.isfinite(correlation)
    if not is_threshold.any():
        return 0.5
    best = int(np.argmax(np.where(is_threshold, correlation, -np.inf)))
    threshold = float(descending[best] + descending[best + 1]) / 2
    return threshold if 0 < threshold < 1 else 0.5


def describe_decision(values: Mapping[str, Any], second_class: str = "the second class", has_weights: bool = False) -> str:
    """A decision in words. `values` may have, beside its own, the calibration `error` of a split, and `error_before` that of the
    probabilities as they come from the model."""
    decision = Decision(**{field.name: values[field.name] for field in fields(Decision)})
    why = "by task.class_weights" if has_weights else "chosen on validation for the correlation of predictions and classes"
    text = f"{second_class} is predicted above a probability of {decision.threshold:.3g}, {why}"
    error = f"expected calibration error {values['error']:.4f}" if "error" in values else ""
    if not decision.is_calibrated:
        return f"{text}; probabilities are the model's own" + (f", {error}" if error else "")
    before = f", {values['error_before']:.4f} before" if "error_before" in values else ""
    return f"{text}; probabilities are calibrated on validation" + (f": {error}{before}" if error else "")

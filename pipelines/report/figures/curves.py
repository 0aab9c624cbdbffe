"""Curves and their areas from counts of scores, and calibration, in plain numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Table = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Curve:
    """The thresholds of a class, from the highest score to the lowest: rates, from 0 to 1."""

    name: str
    true_positive_rate: np.ndarray
    false_positive_rate: np.ndarray
    precision: np.ndarray
    roc_area: float
    """NaN if all rows are of the class, or none."""
    precision_area: float
    """Average precision (the sum of precision over the steps of recall); NaN if no row is of the class."""
    share: float
    """The share of rows that are of the class, which is the precision of guessing."""


def curves_of(scores: Table) -> list[Curve]:
    """A curve for each class in a table `scores`, in its order."""
    names = np.array(scores["class"], dtype=object)
    columns = {name: np.array(scores[name]) for name in ("logit", "rows_of_class", "other_rows")}
    return [_curve(name, {column: values[names == name] for column, values in columns.items()}) for name in dict.fromkeys(scores["class"])]


def _curve(name: str, columns: Mapping[str, np.ndarray]) -> Curve:
    falling = np.argsort(-columns["logit"], kind="stable")
    true, false = (np.concatenate([[0], np.cumsum(columns[which][falling])]) for which in ("rows_of_class", "other_rows"))
    positives, negatives = int(true[-1]), int(false[-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        true_rate, false_rate = true / positives, false / negatives
        precision = true[1:] / (true[1:] + false[1:])
        roc = float(np.trapezoid(true_rate, false_rate)) if positives and negatives else np.nan
        average = float((np.diff(true_rate) * precision).sum()) if positives else np.nan
        share = positives / (positives + negatives) if positives + negatives else np.nan
    return Curve(name, true_rate, false_rate, np.concatenate([precision[:1], precision]), roc, average, float(share))


def calibration_error(calibration: Table) -> float:
    """Expected calibration error (Naeini, Cooper and Hauskrecht 2015): the mean over rows of |confidence − frequency| of their bin."""
    rows, confidence, happened = (np.array(calibration[name], float) for name in ("rows", "confidence", "happened"))
    return float((rows * np.abs(confidence - happened)).sum() / rows.sum()) if rows.sum() else float("nan")


def wilson(successes: float, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if not rows:
        return float("nan"), float("nan")
    z, share = 1.959964, successes / rows
    centre, half = share + z * z / (2 * rows), z * float(np.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows)))
    return max(0.0, (centre - half) / (1 + z * z / rows)), min(1.0, (centre + half) / (1 + z * z / rows))

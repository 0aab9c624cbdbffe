"""ROC and precision-recall curves and their areas from counts of scores, and calibration, in plain numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.ranking import average_precision, roc_area

Table = Mapping[str, Sequence[Any]]
Bounds = tuple[float, float]
"""Numbers between which a number lies for certain."""


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
    roc_bounds: Bounds | None = None
    """None if the areas are exact."""
    precision_bounds: Bounds | None = None


def exact_curves(scores: Table, areas: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """A curve for each class, from points of it in a table `scores`, with its exact areas: `class`, `roc`, `precision`."""
    exact_areas = {area["class"]: [np.nan if area[name] is None else float(area[name]) for name in ("roc", "precision")] for area in areas}
    curves = {curve.name: curve for curve in class_curves(scores)}
    return [
        replace(curves[name], roc_area=roc, precision_area=precision, roc_bounds=None, precision_bounds=None)
        for name, (roc, precision) in exact_areas.items()
        if name in curves
    ]


def class_curves(scores: Table) -> list[Curve]:
    """A curve for each class in a table `scores` that counts the rows of bins, in its order. Areas are those of scores that are equal
    within a bin, with bounds for any order of them."""
    names = np.array(scores["class"], dtype=object)
    columns = [np.array(scores[name]) for name in ("logit", "rows_of_class", "other_rows")]
    curves = []
    for name in dict.fromkeys(scores["class"]):
        logits, *counts = (values[names == name] for values in columns)
        falling = np.argsort(-logits, kind="stable")
        counts = [rows[falling] for rows in counts]
        true, false = (np.concatenate([[0], np.cumsum(rows)]) for rows in counts)
        positives, negatives = int(true[-1]), int(false[-1])
        with np.errstate(invalid="ignore", divide="ignore"):
            true_rate, false_rate = true / positives, false / negatives
            precision = true[1:] / (true[1:] + false[1:])
            share = positives / (positives + negatives) if positives + negatives else np.nan
        areas = roc_area(*counts), average_precision(*counts)
        bounds = _roc_bounds(areas[0], true, false), _precision_bounds(true, false)
        curves.append(Curve(name, true_rate, false_rate, np.concatenate([precision[:1], precision]), *areas, float(share), *bounds))
    return curves


def _roc_bounds(area: float, true: np.ndarray, false: np.ndarray) -> Bounds:
    """An area counts pairs within a bin as half in order; between none and all of them are. `true` and `false` are running counts."""
    pairs = float((np.diff(true) * np.diff(false)).sum()) / max(float(true[-1]) * float(false[-1]), 1.0)
    return max(0.0, area - pairs / 2), min(1.0, area + pairs / 2)


def _precision_bounds(true: np.ndarray, false: np.ndarray) -> Bounds:
    """Average precision if in every bin all rows of the class come last, one by one, or first, with one score.

    The former sums (t + i) / (c + i) for i = 1 … n. There, n rows of the class follow t of its rows, and c rows of any class.
    That is n − (c − t) Σ 1 / (c + i), and the sum is at most ln((c + n) / c).
    """
    if not true[-1]:
        return float("nan"), float("nan")
    new, before, false_after = np.diff(true).astype(float), true[:-1].astype(float), false[1:].astype(float)
    count = before + false_after
    with np.errstate(divide="ignore", invalid="ignore"):
        low = new - np.where(false_after > 0, false_after * np.log1p(new / count), 0.0)
        high = new * np.where(new > 0, (before + new) / (before + new + false[:-1]), 0.0)
    return max(0.0, float(low.sum() / true[-1])), min(1.0, float(high.sum() / true[-1]))


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

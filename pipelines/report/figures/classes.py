"""Figures of targets with classes."""

from collections.abc import Callable
from math import ceil, floor
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from pipelines.report.charts import BLUE, GREY, INK, LINE
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, colour, drawing, shorten
from pipelines.report.figures.class_curves import Bounds, Curve, calibration_error, class_curves, exact_curves

MOST_NAMED = 6
"""Curves in colours of their own, those with the smallest areas; the others are grey."""
MOST_CLASSES = 40
"""Classes of a confusion matrix that can be drawn."""
MOST_NUMBERS = 12
"""Classes up to which the cells show their numbers."""
Place = Literal["lower left", "lower right"]
_BLUES = LinearSegmentedColormap.from_list("blues", ["#ffffff", BLUE])


def confusion(split: SplitEvaluation) -> tuple[bytes, str]:
    """Rows by true and predicted class. The colour is the share of the true class."""
    table, classes = split.tables.get("confusion"), list(split.summary.get("classes", ()))
    if table is None or not 0 < len(classes) <= MOST_CLASSES:
        raise UndefinedError(f"a confusion matrix is drawn for up to {MOST_CLASSES} classes; this target has {len(classes)}")
    places = {name: number for number, name in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)))
    for true, predicted, rows in zip(table["true"], table["predicted"], table["rows"], strict=True):
        counts[places[true], places[predicted]] = rows
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    with drawing() as canvas:
        axes = canvas.axes[0]
        axes.imshow(shares, cmap=_BLUES, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        names = [shorten(name, 9) for name in classes]
        axes.set(xlabel="predicted", ylabel=f"true {shorten(split.summary.get('target', ''), 20)}")
        stride = -(-len(classes) // 14)
        axes.set_xticks(range(0, len(classes), stride), names[::stride], rotation=30 if len(names) > 4 and max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(0, len(classes), stride), names[::stride])
        axes.grid(False)
        if len(classes) <= MOST_NUMBERS:
            size = 9 if len(classes) <= 4 else 7
            for row, column in zip(*np.nonzero(counts), strict=True):
                shade = "white" if shares[row, column] > 0.55 else INK
                axes.text(column, row, f"{counts[row, column]:.0f}", ha="center", va="center", color=shade, fontsize=size)
    right = np.trace(counts) / counts.sum()
    return (
        canvas.svg,
        f"Confusion: {np.trace(counts):,.0f} of {counts.sum():,.0f} rows right ({right:.1%}); the shade is the share of the true class.",
    )


def roc(split: SplitEvaluation) -> tuple[bytes, str]:
    curves = _curves(split, "an ROC curve")
    with drawing() as canvas:
        axes = canvas.axes[0]
        axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
        _draw(axes, curves, lambda curve: (curve.false_positive_rate, curve.true_positive_rate, curve.roc_area), "lower right")
        axes.set(xlabel="false positive rate", ylabel="true positive rate", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return canvas.svg, f"ROC: area {_areas(curves, [(curve.roc_area, curve.roc_bounds) for curve in curves])}."


def precision_recall(split: SplitEvaluation) -> tuple[bytes, str]:
    curves = _curves(split, "a precision-recall curve")
    with drawing() as canvas:
        axes = canvas.axes[0]
        if len(curves) == 1:
            axes.axhline(curves[0].share, color=GREY, linestyle="--", linewidth=1)
        _draw(axes, curves, lambda curve: (curve.true_positive_rate, curve.precision, curve.precision_area), "lower left")
        axes.set(xlabel="recall", ylabel="precision", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    areas = [(curve.precision_area, curve.precision_bounds) for curve in curves]
    return canvas.svg, f"Precision and recall: average precision {_areas(curves, areas)}."


def calibration(split: SplitEvaluation) -> tuple[bytes, str]:
    """How often what was predicted with some confidence was so."""
    table = split.tables.get("calibration")
    if table is None or len(table["rows"]) < 2:
        raise UndefinedError("it needs predictions of different confidence, and all rows are in one bin")
    x_label = f"predicted probability of {shorten(split.summary['classes'][1], 20)}" if split.kind == "binary" else "confidence"
    with drawing() as canvas:
        axes = canvas.axes[0]
        axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
        rows = np.array(table["rows"], float)
        axes.bar(table["confidence"], rows / rows.sum(), width=0.04, color=LINE, label="share of rows")
        axes.plot(table["confidence"], table["happened"], marker="o", markersize=4, color=BLUE, label="frequency")
        axes.set(xlabel=x_label, ylabel="frequency", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        axes.legend(loc="upper left")
    return canvas.svg, f"Calibration: expected error {calibration_error(table):.4f}. Below the diagonal, predictions are too high."


def _curves(split: SplitEvaluation, figure: str) -> list[Curve]:
    """Curves of classes that some rows are of, and others are not. Raises UndefinedError, about the `figure`, if there are none."""
    if "scores" not in split.tables:
        raise UndefinedError("scores are counted for up to 20 classes")
    scores, areas = split.tables["scores"], split.summary.get("areas")
    curves = class_curves(scores) if areas is None else exact_curves(scores, areas)
    if defined := [curve for curve in curves if np.isfinite(curve.roc_area)]:
        return defined
    table = split.tables.get("classes", {"class": [], "rows": []})
    present = " and ".join(str(name) for name, rows in zip(table["class"], table["rows"], strict=True) if rows)
    raise UndefinedError(f"{figure} needs rows of at least two classes, and split {split.name} has only {present or 'none'}")


def _draw(axes: Axes, curves: list[Curve], points: Callable[[Curve], tuple[np.ndarray, np.ndarray, float]], place: Place) -> None:
    """`points` gives x, y and area of a curve."""
    smallest_first = sorted(curves, key=lambda curve: points(curve)[2])
    for curve in smallest_first[MOST_NAMED:]:
        axes.plot(*points(curve)[:2], color=LINE, linewidth=1)
    for number, curve in enumerate(smallest_first[:MOST_NAMED]):
        label = f"{shorten(curve.name)} {'≈ ' if curve.roc_bounds else ''}{points(curve)[2]:.4f}"
        axes.plot(*points(curve)[:2], color=colour(number), linestyle="-" if number % 2 == 0 else "--", label=label)
    axes.legend(loc=place)


def _areas(curves: list[Curve], areas: list[tuple[float, Bounds | None]]) -> str:
    """The areas in words: of one curve, or the mean and the smallest of several."""
    if len(curves) == 1:
        return _area(*areas[0])
    smallest = int(np.argmin([area for area, _ in areas]))
    bounds = [bound for _, bound in areas if bound]
    means = (float(np.mean([low for low, _ in bounds])), float(np.mean([high for _, high in bounds]))) if bounds else None
    mean = f"{_area(float(np.mean([area for area, _ in areas])), means)} on average over {len(curves)} classes, each against the rest"
    return f"{mean}; smallest {_area(*areas[smallest])} of {curves[smallest].name}"


def _area(area: float, bounds: Bounds | None) -> str:
    """An exact area, or one from bins with what it lies between."""
    if bounds is None:
        return f"{area:.4f}"
    return f"≈ {area:.4f} (from counts in bins; between {floor(bounds[0] * 1e4) / 1e4:.4f} and {ceil(bounds[1] * 1e4) / 1e4:.4f})"

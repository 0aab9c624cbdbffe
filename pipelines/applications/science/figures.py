"""Figures of functions on a grid."""

import numpy as np

from pipelines.report.charts import BLUE, GREY, ORANGE
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, drawing, shorten


def fields(split: SplitEvaluation) -> tuple[bytes, str]:
    """Some functions with their truth and a feature."""
    svg, rows, key = _draw(split, "fields")
    return svg, f"Predictions of {rows}, chosen by their numbers. {key}"


def worst_fields(split: SplitEvaluation) -> tuple[bytes, str]:
    """The functions with the greatest relative error."""
    svg, rows, key = _draw(split, "worst_fields")
    return svg, f"The worst predictions, of {rows}. {key}"


def _draw(split: SplitEvaluation, name: str) -> tuple[bytes, str, str]:
    """The figure of a table, which rows it has, and what its colours mean."""
    table = split.tables.get(name)
    if not table or not table["row"]:
        raise UndefinedError("no row was predicted")
    rows, errors = np.array(table["row"]), np.array(table["relative_l2"])
    first_rows = list(dict.fromkeys(rows.tolist()))
    with drawing(rows=len(first_rows), inches=(3.7, 1.4 * len(first_rows) + 0.4)) as canvas:
        for axes, row in zip(canvas.axes, first_rows, strict=True):
            chosen = rows == row
            place, true, predicted = (np.array(table[column], float)[chosen] for column in ("place", "true", "predicted"))
            if "feature" in table:  # its values are often far larger
                other = axes.twinx()
                other.plot(place, np.array(table["feature"], float)[chosen], color=ORANGE, linewidth=0.8)
                other.grid(False)
                other.set_ylabel(shorten(split.summary["feature"]), fontsize=7)
            axes.plot(place, true, color=GREY, linewidth=3)
            axes.plot(place, predicted, color=BLUE, linewidth=1)
            axes.set_title(f"row {row:,}: relative error {errors[chosen][0]:.2g}", loc="left", fontsize=7)
    feature = f" Orange, with the axis on the right, is {split.summary['feature']}." if split.summary.get("feature") else ""
    key = f"Blue is the prediction, grey under it the truth.{feature}"
    return canvas.svg, "rows " + ", ".join(f"{row:,}" for row in first_rows), key


FIGURES = {"fields": (fields, worst_fields)}

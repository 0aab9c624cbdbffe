"""Figures of quantities, and how much a model's decisions rest on each feature."""

import numpy as np

from pipelines.report.charts import BLUE, GREY, RED, SKY
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, drawing, shorten

MOST_FEATURES = 15
"""Features whose importance is drawn."""
_BAR = 0.38
"""Height of a bar; two are beside each other."""


def _sample(split: SplitEvaluation) -> tuple[np.ndarray, np.ndarray]:
    table = split.tables.get("sample", {"true": [], "predicted": []})
    true, predicted = np.array(table["true"], float), np.array(table["predicted"], float)
    finite = np.isfinite(true) & np.isfinite(predicted)
    if not finite.any():
        raise UndefinedError("no row has a finite prediction")
    return true[finite], predicted[finite]


def predictions_against_truth(split: SplitEvaluation) -> tuple[bytes, str]:
    true, predicted = _sample(split)
    low, high = float(min(true.min(), predicted.min())), float(max(true.max(), predicted.max()))
    with drawing() as canvas:
        axes = canvas.axes[0]
        axes.scatter(true, predicted, s=5, color=BLUE, alpha=0.35, linewidths=0, rasterized=True)
        axes.plot([low, high], [low, high], color=GREY, linestyle="--", linewidth=1)
        axes.set(xlabel=f"true {shorten(split.summary.get('target', ''), 24)}", ylabel="predicted")
    return canvas.svg, f"Predicted against true values of {_count(split, len(true))}, in the units of the query."


def residuals(split: SplitEvaluation) -> tuple[bytes, str]:
    true, predicted = _sample(split)
    error = predicted - true
    low, middle, high = np.quantile(error, [0.05, 0.5, 0.95])
    with drawing() as canvas:
        axes = canvas.axes[0]
        reach = float(np.quantile(np.abs(error), 0.995)) or 1.0
        axes.hist(np.clip(error, -reach, reach), bins=41, color=BLUE)
        axes.axvline(0, color=GREY, linewidth=1, linestyle="--")
        axes.axvline(middle, color=RED, linewidth=1.4)
        axes.set(xlabel="predicted − true", ylabel="rows")
    return canvas.svg, (
        f"Residuals of {_count(split, len(error))}: median {middle:.4g} (red), 90 % between {low:.4g} and {high:.4g}; "
        "the outermost bars hold what is beyond."
    )


def _count(split: SplitEvaluation, rows: int) -> str:
    split_rows = int(split.summary.get("rows", rows))
    return f"all {rows:,} rows" if rows >= split_rows else f"{rows:,} of {split_rows:,} rows, chosen by their numbers"


def importance(split: SplitEvaluation) -> tuple[bytes, str]:
    """The share of each feature in every measure, the largest first."""
    table = split.tables["importance"]
    measures = [name for name in table if name != "feature"]
    totals = {name: float(sum(table[name])) for name in measures}
    if not all(totals.values()):
        raise UndefinedError("the model decides on no feature")
    names = [shorten(name, 18) for name in table["feature"][:MOST_FEATURES]]
    places = np.arange(len(names))
    with drawing(inches=(3.7, 0.9 + 0.24 * len(names))) as canvas:
        axes = canvas.axes[0]
        for number, (name, colour) in enumerate(zip(measures, (BLUE, SKY), strict=False)):
            shares = np.array(table[name][: len(names)], float) / totals[name]
            axes.barh(places + (number - 0.5) * _BAR, shares, _BAR, color=colour, label=name)
        axes.set(yticks=places, yticklabels=names)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower right")
        canvas.margin = 0.36
    count = len(table["feature"])
    features = f"the first {MOST_FEATURES} of {count} features" if count > MOST_FEATURES else "each feature"
    sums = ", ".join(f"{total:,.4g} {name}" for name, total in totals.items())
    return (
        canvas.svg,
        f"Share of {features} in what the model decides by ({sums} in all), summed over the columns that a feature became.",
    )

"""How much a model's decisions rest on each feature."""

import numpy as np

from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, drawing, shorten
from pipelines.report.style import BLUE, SKY

MOST_FEATURES = 15
_BAR = 0.38


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
    return canvas.svg, _caption(len(table["feature"]), totals)


def _caption(count: int, totals: dict[str, float]) -> str:
    few = f"the first {MOST_FEATURES} of {count} features" if count > MOST_FEATURES else "each feature"
    sums = ", ".join(f"{total:,.4g} {name}" for name, total in totals.items())
    return f"Share of {few} in what the model decides by ({sums} in all), summed over the columns that a feature became."

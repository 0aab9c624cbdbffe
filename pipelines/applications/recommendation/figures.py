"""Figures of the next item."""

import numpy as np

from pipelines.report.charts import BLUE, ORANGE
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, drawing


def first_ranks(split: SplitEvaluation) -> tuple[bytes, str]:
    """Hit rate and NDCG among the first k, for every k."""
    table = split.tables.get("ranks")
    if not table or not table["rank"]:
        raise UndefinedError("no row was ranked")
    most = int(split.summary["ranks_counted"])
    counts = np.zeros(most + 1)
    counts[np.array(table["rank"]) - 1] = table["rows"]
    shares = counts[:-1] / counts.sum()
    first = np.arange(1, most + 1)
    hits, gains = np.cumsum(shares), np.cumsum(shares / np.log2(first + 1))
    with drawing() as canvas:
        axes = canvas.axes[0]
        axes.plot(first, hits, color=BLUE, label="hit rate")
        axes.plot(first, gains, color=ORANGE, linestyle="--", label="NDCG")
        axes.set(xscale="log", xlabel="among the first k", ylabel="share", ylim=(0, None))
        axes.legend(loc="upper left")
    ten = min(10, most) - 1
    items = int(split.summary.get("items", 0))
    return canvas.svg, f"The right item among all {items:,}: in {hits[ten]:.1%} of the rows it is one of the first {ten + 1}."


FIGURES = {"ranking": (first_ranks,)}

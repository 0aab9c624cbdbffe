"""Figures of a language model."""

import numpy as np

from pipelines.ranking import ratio_influences
from pipelines.report.charts import BLUE, RED
from pipelines.report.evaluation import SplitEvaluation
from pipelines.report.figures.canvas import UndefinedError, drawing


def likelihoods(split: SplitEvaluation) -> tuple[bytes, str]:
    values = np.array(split.tables.get("sample", {}).get("nats_per_token", []), float)
    values = values[np.isfinite(values)]
    if not len(values):
        raise UndefinedError("no window has a token")
    middle = float(np.median(values))
    with drawing() as canvas:
        axes = canvas.axes[0]
        axes.hist(values, bins=40, color=BLUE)
        axes.axvline(middle, color=RED, linewidth=1.4)
        axes.set(xlabel="nats per token", ylabel="windows")
    return canvas.svg, f"Likelihood of {len(values):,} of {int(split.summary['rows']):,} windows: median {middle:.4g} nats per token (red)."


def perplexity_influences(nats: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return np.exp(nats.sum() / tokens.sum()) * ratio_influences(nats, tokens)


def bits_per_byte_influences(nats: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return ratio_influences(nats, sizes) / np.log(2)


FIGURES = {"windows": (likelihoods,)}
INFLUENCES = {
    "nats_per_token": (ratio_influences, ("nats", "tokens")),
    "perplexity": (perplexity_influences, ("nats", "tokens")),
    "bits_per_byte": (bits_per_byte_influences, ("nats", "bytes")),
}

"""The table of metrics: what tasks choose epochs by, gates measure again from predictions, and pages compare row by row.

A task of one's own may have any other metric of torchmetrics; its class then says in `higher_is_better` which direction is better.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

Direction = Literal["min", "max"]
Predictions = Literal["", "two classes", "classes", "quantity"]
Monitor = tuple[str, Direction]
"""The metric that selects the best epoch, and whether lower or higher is better."""


@dataclass(frozen=True)
class MetricEntry:
    name: str
    direction: Direction
    needs: tuple[str, ...] = ()
    """Columns of the rows' outcomes that decide it, if it is not the mean of the column with its own name."""
    predictions: Predictions = ""
    """The predictions from which it can be computed again; empty for none."""

    @property
    def monitor(self) -> Monitor:
        return self.name, self.direction


METRICS = {
    entry.name: entry
    for entry in (
        MetricEntry("auc", "max", ("score", "positive"), "two classes"),
        MetricEntry("accuracy", "max", predictions="classes"),
        MetricEntry("loss", "min", ("cross_entropy", "known"), "classes"),
        MetricEntry("rmse", "min", ("mse",), "quantity"),
        MetricEntry("mae", "min", predictions="quantity"),
        MetricEntry("mse", "min", predictions="quantity"),
        MetricEntry("r2", "max"),
        MetricEntry("average_precision", "max", ("score", "positive")),
        MetricEntry("balanced_accuracy", "max"),
        MetricEntry("f1", "max"),
        MetricEntry("exact_match", "max"),
        MetricEntry("rank_error", "min"),
        MetricEntry("mape", "min"),
        MetricEntry("deviance", "min"),
        MetricEntry("pinball", "min"),
        MetricEntry("hit_rate_10", "max"),
        MetricEntry("ndcg_10", "max"),
        MetricEntry("nats_per_token", "min", ("nats", "tokens")),
        MetricEntry("perplexity", "min", ("nats", "tokens")),
        MetricEntry("bits_per_byte", "min", ("nats", "bytes")),
        MetricEntry("dice", "max"),
        MetricEntry("pooled_dice", "max"),
        MetricEntry("pixel_accuracy", "max"),
        MetricEntry("iou", "max"),
        MetricEntry("relative_l2", "min"),
        MetricEntry("map_50", "max"),
        MetricEntry("map", "max"),
        MetricEntry("repeat_last_mse", "min"),
        MetricEntry("repeat_last_mae", "min"),
    )
}
"""By name."""


def prediction_metrics(predictions: Predictions) -> tuple[str, ...]:
    """Names of the metrics that follow from predictions of this kind."""
    kinds = {"two classes", "classes"} if predictions == "two classes" else {predictions} - {""}
    return tuple(entry.name for entry in METRICS.values() if entry.predictions in kinds)


# Both areas equal scikit-learn's to 1e-16. Of four million rows, scikit-learn takes 7.5 s for both areas, 5.8 s of their counts by score,
# and this 0.4 s. A resample of a bootstrap over 1,000 rows takes it 1.7 ms, and this 0.02 ms.
def roc_area(positives: np.ndarray, negatives: np.ndarray) -> float:
    """The area under the ROC curve, from the rows of both classes by score, the highest score first; NaN without rows of both.

    It is the probability that a positive row has a higher score than a negative one; equal scores count half.
    """
    pairs = float(positives.sum()) * float(negatives.sum())
    return float((negatives * (np.cumsum(positives) - positives / 2)).sum() / pairs) if pairs else float("nan")


def average_precision(positives: np.ndarray, negatives: np.ndarray) -> float:
    """The sum of precision over the steps of recall, from the rows of both classes by score, the highest score first; NaN without
    positive rows."""
    true, false = (np.cumsum(rows, dtype=np.float64) for rows in (positives, negatives))
    return float((positives * (true / (true + false))).sum() / true[-1]) if len(true) and true[-1] else float("nan")

"""Difference of a metric of two runs, and whether it is more than the choice of the rows could do.

Both models have predicted the same rows. Each row has an influence on a metric: how much the metric of all rows depends on it. The
difference of the two models' influences, row by row, gives the standard error of the difference of their metrics: for means this is the
paired t-test's, for the ROC area that of DeLong, DeLong and Clarke-Pearson (1988), and for roots and ratios the delta method's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.stats import rankdata

from pipelines.report.evaluation import SplitEvaluation
from pipelines.tasks.metrics.table import METRICS

Columns = Mapping[str, np.ndarray]
LEAST_ROWS = 20
"""Rows below which there is no interval."""


@dataclass(frozen=True)
class Difference:
    """Of a metric of two runs on the same rows."""

    value: float
    low: float
    high: float
    rows: int
    """Of the split."""

    @property
    def is_beyond_chance(self) -> bool:
        return self.low > 0 or self.high < 0


def metric_difference(metric: str, split: SplitEvaluation, other: SplitEvaluation, comparisons: int = 1) -> Difference | None:
    """The metric of `split` less that of `other`, with the interval that holds the difference on all rows of this kind with 95 %
    confidence; wider, by Bonferroni's rule, among several `comparisons`. None if the rows do not tell."""
    values = [evaluation.summary.get("metrics", {}).get(metric) for evaluation in (split, other)]
    joined = _same_rows(split, other)
    if joined is None or not all(isinstance(value, float | int) for value in values):
        return None
    first, second = (influences(metric, columns) for columns in joined)
    if first is None or second is None:
        return None
    rows = int(split.summary["rows"])
    spread = float(np.std(first - second, ddof=1))
    reach = float(NormalDist().inv_cdf(1 - 0.025 / comparisons) * spread / np.sqrt(rows))
    value = float(values[0]) - float(values[1])
    return Difference(value, value - reach, value + reach, rows) if np.isfinite(reach) else None


def influences(metric: str, columns: Columns) -> np.ndarray | None:
    """Each row's influence on the metric, up to a constant, shape (rows,); None if the columns do not give this metric."""
    names = METRICS[metric].needs if metric in METRICS else ()
    if names and all(name in columns for name in names):
        with np.errstate(all="ignore"):
            return _INFLUENCES[metric](*(columns[name] for name in names))
    return columns.get(metric)


def _same_rows(split: SplitEvaluation, other: SplitEvaluation) -> tuple[Columns, Columns] | None:
    """The outcomes of the rows that both have kept, in one order."""
    outcomes = [evaluation.tables.get("outcomes", {}) for evaluation in (split, other)]
    tables = [{name: np.array(values) for name, values in columns.items()} for columns in outcomes]
    if split.summary.get("rows") != other.summary.get("rows") or not all(len(table.get("row", ())) for table in tables):
        return None
    _, *places = np.intersect1d(tables[0]["row"], tables[1]["row"], assume_unique=True, return_indices=True)
    if len(places[0]) < LEAST_ROWS:
        return None
    first, second = ({name: values[chosen] for name, values in table.items()} for table, chosen in zip(tables, places, strict=True))
    return first, second


def _root(squares: np.ndarray) -> np.ndarray:
    return squares / (2 * np.sqrt(squares.mean()))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return (above - below * above.sum() / below.sum()) / below.mean()


def _perplexity(nats: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    return np.exp(nats.sum() / tokens.sum()) * _ratio(nats, tokens)


def _bits(nats: np.ndarray, count: np.ndarray) -> np.ndarray:
    return _ratio(nats, count) / np.log(2)


def _roc_area(score: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """DeLong's structural components, from midranks (Sun and Xu 2014), as if both classes were one sample."""
    is_positive = positive == 1
    positives, negatives = int(is_positive.sum()), int((~is_positive).sum())
    if not positives or not negatives:
        return np.full(len(score), np.nan)
    overall, within = rankdata(score), np.empty(len(score))
    for is_in_class in (is_positive, ~is_positive):
        within[is_in_class] = rankdata(score[is_in_class])
    components = np.where(is_positive, (overall - within) / negatives, 1 - (overall - within) / positives)
    area = components[is_positive].mean()
    return np.where(is_positive, len(score) / positives, len(score) / negatives) * (components - area)


def _average_precision(score: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """The derivatives by the weight of each row, times the rows: of the mean over positive rows of the precision at their scores."""
    rows, is_positive = len(score), positive == 1
    if not is_positive.any():
        return np.full(rows, np.nan)
    _, place = np.unique(-score, return_inverse=True)
    positives, above = np.bincount(place, is_positive), np.cumsum(np.bincount(place))
    precision = np.cumsum(positives) / above
    area = (positives * precision).sum() / positives.sum()
    # A row lowers or raises the precision at every score that is not above its own.
    gains, losses = (np.cumsum((positives * part / above)[::-1])[::-1][place] for part in (np.ones_like(precision), precision))
    return rows / positives.sum() * (is_positive * (precision[place] - area + gains) - losses)


_INFLUENCES: dict[str, Callable[..., np.ndarray]] = {
    "auc": _roc_area,
    "average_precision": _average_precision,
    "rmse": _root,
    "loss": _ratio,
    "nats_per_token": _ratio,
    "perplexity": _perplexity,
    "bits_per_byte": _bits,
}
"""By metric, of the columns that it needs."""

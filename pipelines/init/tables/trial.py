"""A trial on the sample of a wide table: do boosted trees learn more than a linear model and a small network?

Where few of many columns say something, trees find them and networks do not; where most say a little, it is the other way. So a rule by the
number of columns would often be wrong, and three small fits of scikit-learn decide.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.init.tables.target import TargetChoice

MOST_ROWS = 3_000
LEAST_ROWS = 300
LEAST_ROWS_OF_A_CLASS = 30
LARGEST = 1e30
"""Larger numbers are taken for this one, whose square a float still holds."""
MOST_CLASSES = 20
"""Classes beyond which boosting takes minutes: it grows a tree for each."""
_TREES = 60
METRICS = {"two classes": "AUC", "classes": "accuracy", "number": "R²"}
BOOSTING = "boosted trees"


@dataclass(frozen=True)
class Trial:
    """Scores of models on rows of the sample that they were not fitted on; higher is better."""

    metric: str
    scores: dict[str, float]
    held_out_rows: int

    @property
    def prefers_trees(self) -> bool:
        """Whether trees are ahead by more than chance gives: two standard errors of a share are at most 1 / √rows."""
        best_other = max(score for name, score in self.scores.items() if name != BOOSTING)
        return self.scores[BOOSTING] > best_other + 1 / sqrt(self.held_out_rows)

    @property
    def text(self) -> str:
        scores = ", ".join(f"{name} {score:.2f}" for name, score in self.scores.items())
        return f"{self.metric} on {self.held_out_rows:,} rows of the sample, held out from small fits: {scores}"


def try_models(features: Sequence[ColumnFacts], target: TargetChoice) -> Trial | None:
    """Fit small models on two thirds of at most MOST_ROWS rows, and score them on the others. None if there are too few rows, also of a
    class, or too many classes for boosting."""
    import sklearn.metrics as measures  # noqa: PLC0415, it takes a second, which only wide tables need
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    outputs = _numbers(target.column)
    rows = np.flatnonzero(~np.isnan(outputs))
    if len(rows) < LEAST_ROWS or (target.has_classes and target.column.distinct > MOST_CLASSES):
        return None
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int)]
    inputs, outputs = np.stack([_numbers(column)[rows] for column in features], axis=1), outputs[rows]
    is_held_out = np.arange(len(rows)) % 3 == 2
    if target.has_classes and _rows_of_rarest_class(outputs, is_held_out) < LEAST_ROWS_OF_A_CLASS:
        return None
    scores = {}
    with threadpool_limits(1), warnings.catch_warnings():  # the sums of several threads differ in their last digits
        warnings.simplefilter("ignore")  # that a small fit ended early, or that a column is empty in its rows
        fitted_inputs = inputs[~is_held_out]
        inputs = inputs[:, np.nanmin(fitted_inputs, 0) < np.nanmax(fitted_inputs, 0)]
        for name, model in _models(target).items():
            model.fit(inputs[~is_held_out], outputs[~is_held_out])
            held_out, true = inputs[is_held_out], outputs[is_held_out]
            if target.kind == "two classes":
                scores[name] = float(measures.roc_auc_score(true, model.predict_proba(held_out)[:, 1]))
            else:
                measure = measures.accuracy_score if target.has_classes else measures.r2_score
                scores[name] = float(measure(true, model.predict(held_out)))
    return Trial(METRICS[target.kind], scores, int(is_held_out.sum()))


def _rows_of_rarest_class(outputs: np.ndarray, is_held_out: np.ndarray) -> int:
    """Rows of the sample that the rarest class has; 0 if it lacks a class that is only fitted, or only held out."""
    values, counts = np.unique(outputs, return_counts=True)
    is_in_both = all(np.array_equal(np.unique(outputs[part]), values) for part in (is_held_out, ~is_held_out))
    return int(counts.min()) if is_in_both else 0


def _numbers(column: ColumnFacts) -> np.ndarray:
    """One float64 for each row, NaN for NULL and infinity: the number, or of another value its rank by frequency."""
    if column.kind in ("number", "boolean", "moment"):
        numbers = column.places
        return np.where(np.isfinite(numbers), numbers.clip(-LARGEST, LARGEST), np.nan)
    if column.kind != "text":
        return np.zeros(column.rows)
    rank = {value: float(number) for number, value in enumerate(column.counts[0])}
    return np.array([rank.get(value, np.nan) for value in column.typed.values.to_pylist()])


def _models(target: TargetChoice) -> dict[str, Any]:
    from sklearn import ensemble, linear_model, neural_network  # noqa: PLC0415
    from sklearn.compose import TransformedTargetRegressor  # noqa: PLC0415
    from sklearn.impute import SimpleImputer  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    def scale_inputs(model: Any) -> Any:
        return make_pipeline(SimpleImputer(), StandardScaler(), model)

    trees = _TREES // (target.column.distinct if target.kind == "classes" else 1)
    boosting: dict[str, Any] = {"max_iter": max(trees, 10), "early_stopping": False, "random_state": 0}
    perceptron: dict[str, Any] = {"hidden_layer_sizes": (128,), "early_stopping": True, "random_state": 0}
    if target.has_classes:
        return {
            BOOSTING: ensemble.HistGradientBoostingClassifier(**boosting),
            "a linear model": scale_inputs(linear_model.LogisticRegression(max_iter=200)),
            "a small network": scale_inputs(neural_network.MLPClassifier(**perceptron)),
        }
    network = TransformedTargetRegressor(neural_network.MLPRegressor(**perceptron), transformer=StandardScaler())
    return {
        BOOSTING: ensemble.HistGradientBoostingRegressor(**boosting),
        "a linear model": scale_inputs(linear_model.RidgeCV()),
        "a small network": scale_inputs(network),
    }

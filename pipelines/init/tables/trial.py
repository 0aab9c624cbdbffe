"""A trial on the sample of a wide table, or of one with texts: do boosted trees learn more than a linear model and a small network?

Where few of many columns say something, trees find them and networks do not; where most say a little, it is the other way. So a rule by the
number of columns would often be wrong, and three small fits of scikit-learn decide. So they do for texts beside other columns, of which
trees know the frequent words, and the others all.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import pyarrow as pa

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
_WORDS_OF_TREES = 300
_WORDS = 2**12
"""Hashes of words of a text."""
_NORM = 10.0
"""The L2 norm of the weights of a text's words, as in the task `tabular`."""
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


def try_models(features: Sequence[ColumnFacts], texts: Sequence[ColumnFacts], target: TargetChoice) -> Trial | None:
    """Fit small models on two thirds of at most MOST_ROWS rows, and score them on the others. `texts` are none of the `features`. None if
    there are too few rows, also of a class, too many classes for boosting, or no feature that varies."""
    import sklearn.metrics as measures  # noqa: PLC0415, it takes a second, which other tables need not take
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
        if not inputs.shape[1]:
            return None
        words = [_count_words(column.typed.values.take(rows)) for column in texts]
        scaled = _scale_inputs(inputs, words, ~is_held_out)
        inputs = np.hstack([inputs, *(_frequent_counts(counts, ~is_held_out) for counts in words)])
        for name, model in _models(target).items():
            inputs_of_model = inputs if name == BOOSTING else scaled
            model.fit(inputs_of_model[~is_held_out], outputs[~is_held_out])
            held_out, true = inputs_of_model[is_held_out], outputs[is_held_out]
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


def _count_words(texts: pa.Array) -> Any:
    """How often each text has each of the words, a sparse matrix. Words are hashed, so that texts without any are no error."""
    from sklearn.feature_extraction.text import HashingVectorizer  # noqa: PLC0415

    return HashingVectorizer(n_features=_WORDS, norm=None, alternate_sign=False).transform(texts.fill_null("").to_pylist())


def _frequent_counts(counts: Any, is_fitted: np.ndarray) -> np.ndarray:
    """The counts of the words that most texts have."""
    texts_with_word = np.asarray((counts[is_fitted] > 0).sum(0)).ravel()
    most = np.argsort(-texts_with_word, kind="stable")[:_WORDS_OF_TREES]
    return np.asarray(counts[:, most].toarray())


def _scale_inputs(inputs: np.ndarray, words: Sequence[Any], is_fitted: np.ndarray) -> Any:
    """The inputs of a linear model and of a network, by the rows they are fitted on: numbers of mean 0 and deviation 1, and beside them the
    weights of the words of each text, in a sparse matrix."""
    from scipy import sparse  # noqa: PLC0415
    from sklearn.feature_extraction.text import TfidfTransformer  # noqa: PLC0415
    from sklearn.impute import SimpleImputer  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    numbers = make_pipeline(SimpleImputer(), StandardScaler()).fit(inputs[is_fitted]).transform(inputs)
    if not words:
        return numbers
    weights = (_NORM * TfidfTransformer(sublinear_tf=True).fit(counts[is_fitted]).transform(counts) for counts in words)
    return sparse.hstack([sparse.csr_matrix(numbers), *weights], format="csr")


def _models(target: TargetChoice) -> dict[str, Any]:
    from sklearn import ensemble, linear_model, neural_network  # noqa: PLC0415
    from sklearn.compose import TransformedTargetRegressor  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    trees = _TREES // (target.column.distinct if target.kind == "classes" else 1)
    boosting: dict[str, Any] = {"max_iter": max(trees, 10), "early_stopping": False, "random_state": 0}
    perceptron: dict[str, Any] = {"hidden_layer_sizes": (128,), "early_stopping": True, "random_state": 0}
    if target.has_classes:
        return {
            BOOSTING: ensemble.HistGradientBoostingClassifier(**boosting),
            "a linear model": linear_model.LogisticRegression(max_iter=200),
            "a small network": neural_network.MLPClassifier(**perceptron),
        }
    network = TransformedTargetRegressor(neural_network.MLPRegressor(**perceptron), transformer=StandardScaler())
    return {
        BOOSTING: ensemble.HistGradientBoostingRegressor(**boosting),
        "a linear model": linear_model.RidgeCV(),
        "a small network": network,
    }

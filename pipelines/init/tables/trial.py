"""A trial on the sample of a table: which model learns most from it?

Trees find steps, and the few columns of many that say something; a linear model is best where every column adds its share, and where rows
are few; a network where smooth functions of several numbers count. A rule by the number of rows or columns would often be wrong. So each is
fitted on some rows of the sample and scored on others, which are divided as the draft divides them: by time, by group, or at random.

The models stand in `trial_models`, and what they are fitted on in `trial_inputs`.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial_inputs import TrialInputs, finite_numbers
from pipelines.ranking import average_precision, roc_area, rows_by_score

AUC, R_SQUARED, ACCURACY, AVERAGE_PRECISION = "AUC", "R²", "accuracy", "average precision"
LEAST_ROWS = 50
LEAST_ROWS_OF_A_CLASS = 10
MOST_ROWS, MOST_VALUES = 20_000, 300_000
"""Of the rows that are fitted and scored, and of rows times columns; each, so that a trial takes seconds."""
MOST_CLASSES = 50
"""Classes beyond which boosting takes minutes: it grows a tree for each."""
_FEW_ROWS = 3_000
"""Rows below which each row is held out once, from three fits; of more, a quarter is, unless a class is rare: a quarter of its rows would
say nothing."""
_RESAMPLES = 100
"""Of the rows held out, from which the standard error of a lead comes."""
_METRICS = {"two classes": AUC, "classes": ACCURACY, "number": R_SQUARED}
"""By the kind of the target."""
Fit = Callable[[TrialInputs, np.ndarray, np.ndarray, bool], np.ndarray]
"""Fits a model on the rows of the inputs, whose target is given, and predicts other rows: numbers, or probabilities of classes."""


def r_squared(true: np.ndarray, predicted: np.ndarray) -> float:
    """The share of the variance that the predictions explain; of columns of several numbers, the mean."""
    return float(np.mean(1 - np.mean((true - predicted) ** 2, 0) / np.maximum(np.var(true, 0), 1e-300)))


@dataclass(frozen=True)
class Trial:
    """Scores of models on rows of the sample that they were not fitted on; higher is better."""

    metric: str
    scores: dict[str, float]
    held_out_rows: int
    best_other: str
    """The best model besides the preferred one."""
    preferred: str = ""
    """The model that is chosen unless another is ahead; empty if it was not tried."""
    lead: float = 0.0
    """How far `best_other` is ahead of the preferred model; negative if that is ahead."""
    untried: tuple[str, ...] = ()
    """Why models were not tried."""
    penalty: float = 0.0
    """Of squared weights, per row, if a linear model of numbers is chosen."""
    standard_error: float = 0.0
    """Of `lead`, by resampling the rows held out, or the groups (Efron 1979)."""

    @property
    def choice(self) -> str:
        """The preferred model, unless another one is ahead by more than a standard error."""
        return self.best_other if not self.preferred or self.lead > self.standard_error else self.preferred

    @property
    def text(self) -> str:
        scores = ", ".join(f"{name} {score:.3g}" for name, score in self.scores.items())
        ahead = ""
        if self.preferred:
            leader, other = (self.best_other, self.preferred) if self.lead > 0 else (self.preferred, self.best_other)
            ahead = f"; {leader} ahead of {other} by {abs(self.lead):.2g} ± {self.standard_error:.2g}"
        return f"{self.metric} on {self.held_out_rows:,} rows of the sample, held out from small fits: {scores}{ahead}"


@dataclass(frozen=True)
class TrialModel:
    """A model that a trial compares with others, and a draft may train."""

    name: str
    """As in "ahead of a small network"."""
    fit: Fit
    """Raises ImportError without a library that it needs."""
    write: Callable[[TargetChoice, int, Trial | None], tuple[dict[str, Any], dict[str, Any]]]
    """The sections `task` and `train` for a target, a number of rows and the trial."""
    is_preferred: bool = False
    """Whether it is chosen unless another model is ahead by more than a standard error, as what is trained soonest is."""
    one_number_only: str = ""
    """Why it is not tried for several numbers; empty if it predicts these too."""
    without_library: str = ""
    """What is said where its library is not there."""
    fit_penalty: Callable[[TrialInputs, np.ndarray], float] | None = None
    """The penalty of squared weights, per row, with which it predicts numbers of rows left out best; None if it has no such penalty."""


def try_models(
    models: Sequence[TrialModel],
    features: Sequence[ColumnFacts],
    texts: Sequence[ColumnFacts],
    target: TargetChoice,
    time: ColumnFacts | None = None,
    group: ColumnFacts | None = None,
) -> Trial | None:
    """Fit models on some rows of the sample, and score them on the others: on the last ones by `time`, or on other values of `group`.
    Several numbers have a score together.

    `texts` are none of the `features`. None if there are too few rows, also of a class, too many classes, or no feature that varies."""
    from threadpoolctl import threadpool_limits  # noqa: PLC0415, with scikit-learn, which takes a second

    rows, true = _trial_rows(target, len(features))
    if not len(rows):
        return None
    with threadpool_limits(1), warnings.catch_warnings():  # the sums of several threads differ in their last digits
        warnings.simplefilter("ignore")  # that a small fit ended early, or that a column is empty in its rows
        inputs = TrialInputs.from_columns(features, texts, rows, has_days=time is None)
        if not inputs.count:
            return None
        folds = list(_folds(rows, time, group, target.has_rare_class))
        held_out = np.concatenate([test for _, test in folds])
        predicted, untried = _predict_held_out(models, inputs, true, folds, target)
    units = np.arange(len(held_out)) if group is None else group.codes[rows][held_out]
    preferred = next((model.name for model in models if model.is_preferred and model.name in predicted), "")
    trial = _compare(predicted, preferred, true[held_out], target, units)
    if not trial:
        return None
    fit_penalty = next(model.fit_penalty for model in models if model.name == trial.choice)
    penalty = fit_penalty(inputs, true) if fit_penalty and not target.has_classes else 0.0
    return replace(trial, penalty=penalty, untried=untried)


def _trial_rows(target: TargetChoice, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the sample that are fitted or scored, as many as so many columns allow, and their targets: a number, or a column for each
    of several, or the numbers from 0 of classes that have enough rows. No rows, if those are too few, or the classes too few or too many.

    Which of two classes is 1 does not count, since their scores are the same either way."""
    if target.has_classes:
        nulls = target.column.typed.values.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        true = np.where(nulls, np.nan, target.column.codes.astype(float))[:, None]
    else:
        true = np.stack([finite_numbers(column) for column in target.columns], axis=1)
    rows = np.flatnonzero(~np.isnan(true).any(1))
    if len(rows) < LEAST_ROWS or (target.has_classes and target.column.distinct > MOST_CLASSES):
        return rows[:0], true[:0]
    most = max(min(MOST_ROWS, MOST_VALUES // max(columns, 1)), 1_000)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(int)]
    true = true[rows] if target.further else true[rows, 0]
    if target.has_classes:
        _, numbers, counts = np.unique(true, return_inverse=True, return_counts=True)
        has_enough = counts >= LEAST_ROWS_OF_A_CLASS
        if has_enough.sum() < 2:
            return rows[:0], true[:0]
        is_frequent = has_enough[numbers]
        rows, true = rows[is_frequent], (np.cumsum(has_enough) - 1)[numbers[is_frequent]]
    return rows, true


def _predict_held_out(
    models: Sequence[TrialModel],
    inputs: TrialInputs,
    true: np.ndarray,
    folds: Sequence[tuple[np.ndarray, np.ndarray]],
    target: TargetChoice,
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Predictions by model, fold after fold, and why other models were not tried."""
    predicted, untried = dict[str, np.ndarray](), list[str]()
    for model in models:
        if model.one_number_only and target.further:
            untried.append(model.one_number_only)
            continue
        try:
            parts = [model.fit(replace(inputs, train=train), true[train], test, target.has_classes) for train, test in folds]
        except ImportError:
            untried.append(model.without_library)
            continue
        predicted[model.name] = np.concatenate(parts)
    return predicted, tuple(untried)


def _compare(predicted: dict[str, np.ndarray], preferred: str, true: np.ndarray, target: TargetChoice, units: np.ndarray) -> Trial | None:
    """The scores of the predictions, and how certain their difference is: rows of one of the `units`, as of a person, err alike and are
    resampled together. None if the rows held out have one class or number only."""
    if np.any(np.all(true == true[0], axis=0)):
        return None
    metric = AVERAGE_PRECISION if target.is_judged_by_precision else _METRICS[target.kind]
    scores = {name: _score(values, true, metric) for name, values in predicted.items()}
    best_other = max((name for name in scores if name != preferred), key=lambda name: scores[name])
    trial = Trial(metric, scores, len(true), best_other, preferred)
    if not preferred:
        return trial
    random, leads = np.random.default_rng(0), list[float]()
    by_unit = np.argsort(units, kind="stable")
    rows_of_units = np.split(by_unit, np.flatnonzero(np.diff(units[by_unit])) + 1)
    while len(leads) < _RESAMPLES:
        resampled = np.concatenate([rows_of_units[unit] for unit in random.integers(0, len(rows_of_units), len(rows_of_units))])
        if len(np.unique(true[resampled])) > 1:
            other, first = (_score(predicted[name][resampled], true[resampled], metric) for name in (best_other, preferred))
            leads.append(other - first)
    return replace(trial, lead=scores[best_other] - scores[preferred], standard_error=float(np.std(leads)))


def _score(predicted: np.ndarray, true: np.ndarray, metric: str) -> float:
    """AUC of the probabilities of the second class or average precision of the rarer one, accuracy of the classes' probabilities, or R² of
    numbers, the mean of several."""
    positive = true == 1
    if metric == AVERAGE_PRECISION:
        is_rarer = positive if 2 * positive.sum() < len(true) else ~positive
        return average_precision(*rows_by_score(predicted[:, 1] if is_rarer is positive else predicted[:, 0], is_rarer))
    if metric == AUC:
        return roc_area(*rows_by_score(predicted[:, 1], positive))
    if metric == ACCURACY:
        return float(np.mean(predicted.argmax(1) == true))
    return r_squared(true, predicted)


def _folds(
    rows: np.ndarray, time: ColumnFacts | None, group: ColumnFacts | None, has_rare_class: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places of the rows to fit on, and to score on: the last ones by time, or every row once where rows are few, in all or of a class."""
    count = len(rows)
    if time is not None:
        later = np.argsort(finite_numbers(time)[rows], kind="stable")
        yield later[: count * 4 // 5], later[count * 4 // 5 :]
        return
    keys = np.arange(count) if group is None else np.unique(group.codes[rows], return_inverse=True)[1]
    draws = np.random.default_rng(0).permutation(keys.max() + 1)[keys]
    has_few_rows = count < _FEW_ROWS
    parts = 3 if has_few_rows else 4
    for part in range(parts if has_few_rows or has_rare_class else 1):
        is_held_out = draws % parts == part
        yield np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)

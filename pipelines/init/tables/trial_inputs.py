"""Inputs of the models of a trial: numbers, categories and words of the sample, each as the model that is drafted has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.auto.column_facts import ColumnFacts

LARGEST = 1e30
"""Larger numbers are taken for this one, whose square a float still holds."""
MOST_CATEGORIES = 256
"""Values of a column that trees divide into two sets, as in the task `trees`; those of a column with more have numbers by their rank."""
LEAST_INDICATORS, MOST_INDICATORS = 64, 1_000
"""Frequent values that have an indicator for the linear model and the network: of each column, and of all together. With 64 of 300 shops
a network had an R² of 0.49, less than trees with 0.56; with all, 0.78."""
_MOST_DENSE = 256
"""Indicators beyond which the inputs are a sparse matrix, whose zeros cost no time."""
MOST_EMBEDDED = 60
"""Numbers beyond which a network takes each as it is."""
_PIECES = 16
_WORDS = 2**12
"""Hashes of words of a text."""
_WORDS_OF_TREES = 300
_NORM = 10.0
"""The L2 norm of the weights of a text's words, as in the task `tabular`."""


@dataclass(frozen=True)
class TrialInputs:
    """Rows of the sample as numbers, each of shape (rows, columns)."""

    numbers: np.ndarray
    """NaN where there is none."""
    categories: np.ndarray
    """Ranks by frequency, NaN where there is none."""
    words: tuple[Any, ...]
    """Counts of words of each text, sparse."""
    train: np.ndarray
    """Places of the rows to fit on."""

    @classmethod
    def from_columns(
        cls, features: Sequence[ColumnFacts], texts: Sequence[ColumnFacts], rows: np.ndarray, has_days: bool = True
    ) -> "TrialInputs":
        """The columns that vary, in these rows; without the days of moments if the rows held out are later than all others."""
        moments = [column for column in features if column.kind == "moment"]
        days = [finite_numbers(column)[rows] for column in moments]
        numbers = [finite_numbers(column)[rows] for column in features if column.kind in ("number", "boolean")]
        numbers += [*(days if has_days else []), *(second - first for first, second in pairwise(days))]
        categories = [frequency_ranks(column)[rows] for column in features if column.kind == "text"]
        categories += [part for column in moments for part in calendar_parts(column, rows)]
        numbers, categories = ([values for values in group if _varies(values)] for group in (numbers, categories))
        words: tuple[Any, ...] = ()
        if texts:
            from sklearn.feature_extraction.text import HashingVectorizer  # noqa: PLC0415

            hashing = HashingVectorizer(n_features=_WORDS, norm=None, alternate_sign=False)  # so that texts without words are no error
            texts_of_rows = (column.typed.values.take(pa.array(rows)).fill_null("").to_pylist() for column in texts)
            words = tuple(map(hashing.transform, texts_of_rows))
        return cls(_stack(numbers, len(rows)), _stack(categories, len(rows)), words, np.arange(len(rows)))

    @property
    def count(self) -> int:
        return self.numbers.shape[1] + self.categories.shape[1] + len(self.words)

    def tree_inputs(self) -> tuple[np.ndarray, list[int]]:
        """Numbers, ranks of categories and counts of frequent words side by side, and the places of those that are categories."""
        first = self.numbers.shape[1]
        few = [place for place, ranks in enumerate(self.categories.T) if np.nanmax(ranks) < MOST_CATEGORIES]
        words = list[np.ndarray]()
        for counts in self.words:
            texts_with_word = np.asarray((counts[self.train] > 0).sum(0)).ravel()
            words.append(counts[:, np.argsort(-texts_with_word, kind="stable")[:_WORDS_OF_TREES]].toarray())
        return np.hstack([self.numbers, self.categories, *words]).astype(np.float32), [first + place for place in few]

    def linear_inputs(self) -> Any:
        """Numbers of mean 0 and deviation 1 by the rows to fit on, an indicator of each frequent category, and weights of words."""
        return self._join([_standardize(self.numbers, self.train)])

    def network_inputs(self) -> Any:
        """As for the linear model, and each number as pieces between its quantiles, as `number_embedding: piecewise` has them."""
        numbers = _standardize(self.numbers, self.train)
        if numbers.shape[1] > MOST_EMBEDDED:
            return self._join([numbers.clip(-5, 5)])
        return self._join([numbers.clip(-5, 5), *(_pieces(values, self.train) for values in numbers.T)])

    def _join(self, numbers: list[np.ndarray]) -> Any:
        from scipy import sparse  # noqa: PLC0415
        from sklearn.feature_extraction.text import TfidfTransformer  # noqa: PLC0415

        most = max(MOST_INDICATORS // max(self.categories.shape[1], 1), LEAST_INDICATORS)
        indicators = []
        for ranks in self.categories.T:  # a column for each of so many frequent values that occurs, and one for all others and NULL
            places = np.unique(np.where(np.isnan(ranks), most, ranks.clip(0, most)), return_inverse=True)[1]
            indicators.append(sparse.csr_matrix((np.ones(len(ranks), np.float32), (np.arange(len(ranks)), places))))
        dense = np.hstack(numbers).astype(np.float32)
        if not self.words and sum(values.shape[1] for values in indicators) <= _MOST_DENSE:
            return np.hstack([dense, *(values.toarray() for values in indicators)])
        fitted = [TfidfTransformer(sublinear_tf=True).fit(counts[self.train]).transform(counts) for counts in self.words]
        return sparse.hstack([sparse.csr_matrix(dense), *indicators, *(_NORM * weights for weights in fitted)], format="csr")


def finite_numbers(column: ColumnFacts) -> np.ndarray:
    """One float64 for each row, NaN for NULL and infinity."""
    numbers = column.places
    return np.where(np.isfinite(numbers), numbers.clip(-LARGEST, LARGEST), np.nan)


def calendar_parts(column: ColumnFacts, rows: np.ndarray) -> list[np.ndarray]:
    """The month, day of the week and hour of a moment, categories as in the draft: as numbers, a linear model would lack every season."""
    moments = column.typed.values.take(pa.array(rows)).cast(pa.timestamp("us"))
    parts = (part(moments).cast(pa.float64()) for part in (pc.month, pc.day_of_week, pc.hour))
    return [part.to_numpy(zero_copy_only=False) for part in parts]


def frequency_ranks(column: ColumnFacts) -> np.ndarray:
    """The rank by frequency of each row's value, from 0; NaN for NULL."""
    rank = {value: float(number) for number, value in enumerate(column.counts[0])}
    return np.array([rank.get(value, np.nan) for value in column.typed.values.to_pylist()])


def _varies(values: np.ndarray) -> bool:
    filled = values[~np.isnan(values)]
    return bool(len(filled)) and (filled.min() < filled.max() or len(filled) < len(values))


def _stack(columns: Sequence[np.ndarray], rows: int) -> np.ndarray:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))


def _standardize(numbers: np.ndarray, train: np.ndarray) -> np.ndarray:
    """NaN becomes the mean, which is 0."""
    if not numbers.shape[1]:
        return numbers
    mean, deviation = np.nanmean(numbers[train], 0), np.nanstd(numbers[train], 0)
    scaled = (numbers - np.nan_to_num(mean)) / np.where(np.nan_to_num(deviation) > 0, deviation, 1.0)
    return np.nan_to_num(scaled)


def _pieces(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    """How much of each piece between quantiles lies below the value, from 0 to 1 (Gorishniy et al. 2022)."""
    edges = np.unique(np.quantile(values[train], np.linspace(0, 1, _PIECES + 1)))
    if len(edges) < 3:
        return np.zeros((len(values), 0))
    return ((values[:, None] - edges[:-1]) / np.diff(edges)).clip(0, 1)

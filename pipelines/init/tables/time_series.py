"""Series: rows in order of time whose target depends on its own past, as one series or as those of a panel. A trial on the sample decides;
`source.windows` makes the columns.

The target's own season is found by its autocorrelation. Then two small fits predict the last fifth of the rows, with and without the
target's earlier values beside the other columns: only what the past says beyond them makes windows worth their price, that a request needs
the rows before.
"""

import warnings
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.dataset.windows import lag_name, rolling_name
from pipelines.data.features.auto.column_facts import ColumnFacts, TypedColumn
from pipelines.init.tables.date_columns import LEAST_MOMENTS
from pipelines.init.tables.target import TargetChoice
from pipelines.init.tables.trial_inputs import calendar_parts, finite_numbers, frequency_ranks

LEAST_ROWS = 100
MOST_ROWS = 6_000
"""The last rows, on which the fits are made: half a second each."""
MOST_STEPS = 1_000
"""The longest season that is sought, in rows; and not more than a tenth of the rows, of which the first lose their windows."""
LEAST_GAIN = 0.05
"""Share of the squared error without the past that the past must take away."""
_NEAR_STRONGEST = 0.8
_HELD_OUT = 0.2
_MOST_NAMES = 10
"""Columns that are examined as names of series."""
_MOST_SERIES = 50
"""Series whose autocorrelations are computed."""
_LEAST_FILLED = 0.5
"""Share of the pairs of a series and a moment that a panel has."""


@dataclass(frozen=True)
class RowOrder:
    """The rows of a table as one series or several, each with its oldest row first."""

    time: ColumnFacts
    """What orders the rows: moments, or numbers such as years."""
    by: tuple[ColumnFacts, ...] = ()
    """Columns whose values name a series; none if all rows are one."""

    @cached_property
    def _series_numbers(self) -> np.ndarray:
        """The number of each row's series."""
        if not self.by:
            return np.zeros(self.time.rows, int)
        codes = np.stack([column.codes for column in self.by], axis=1)
        return np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)

    @cached_property
    def rows(self) -> np.ndarray:
        """Numbers of the table's rows, series by series."""
        return np.lexsort((self.time.places, self._series_numbers))

    @cached_property
    def positions(self) -> np.ndarray:
        """How many rows of its series are before each of `rows`."""
        numbers = self._series_numbers[self.rows]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        return np.arange(len(numbers)) - np.repeat(starts, np.diff(starts, append=len(numbers)))

    @property
    def is_unique(self) -> bool:
        """Whether no two rows of a series have the same time."""
        times = self.time.places[self.rows]
        return not np.any((np.diff(times) == 0) & (self.positions[1:] > 0))

    def lag_values(self, values: np.ndarray, lag: int) -> np.ndarray:
        """For each row of the table, the value so many rows before in its series; NaN if there is none."""
        shifted = np.full(len(values), np.nan)
        shifted[lag:] = values[self.rows][:-lag]
        return self._restore_order(np.where(self.positions >= lag, shifted, np.nan))

    def mean_before(self, values: np.ndarray, count: int) -> np.ndarray:
        """For each row of the table, the mean of so many values directly before it in its series; NaN if there are fewer."""
        means, shift = np.full(len(values), np.nan), values.mean()
        sums = np.concatenate([[0.0], np.cumsum(values[self.rows] - shift)])
        means[count:] = (sums[count:-1] - sums[: -count - 1]) / count + shift
        return self._restore_order(np.where(self.positions >= count, means, np.nan))

    def _restore_order(self, values: np.ndarray) -> np.ndarray:
        result = np.empty(len(values))
        result[self.rows] = values
        return result


@dataclass(frozen=True)
class SeriesWindows:
    """The windows of a target that depends on its past."""

    order: RowOrder
    target: ColumnFacts
    lags: tuple[int, ...]
    """How many rows before."""
    season: int
    """The shortest season in rows; 0 if there is none."""
    gain: float = 0.0
    """Share of the squared error of held-out rows that the past takes away."""

    @property
    def settings(self) -> dict[str, Any]:
        """The section `source.windows`."""
        name = self.target.name
        by = {"by": [column.name for column in self.order.by]} if self.order.by else {}
        rolling = {"rolling": {name: {"mean": self.season}}} if self.season else {}
        return {"order": self.order.time.name, **by, "lags": {name: list(self.lags)}, **rolling}

    @property
    def columns(self) -> list[ColumnFacts]:
        """The columns that the windows make, in the table's order of rows; NULL where a row has too few rows before it."""
        values, name = self.target.places, self.target.name
        columns = {lag_name(name, lag): self.order.lag_values(values, lag) for lag in self.lags}
        if self.season:
            columns[rolling_name(name, "mean", self.season)] = self.order.mean_before(values, self.season)
        return [ColumnFacts(TypedColumn(name, "double", pa.array(column, from_pandas=True))) for name, column in columns.items()]

    @property
    def reason(self) -> str:
        lags = f"{', '.join(map(str, self.lags[:-1]))} and {self.lags[-1]}"
        season = f", and its mean over {self.season}, the season that its autocorrelation shows" if self.season else ""
        owner = f" of the same {' and '.join(column.name for column in self.order.by)}" if self.order.by else ""
        return (
            f"{self.target.name} depends on its past: its values {lags} rows before{owner}{season}, explain {100 * self.gain:.0f} % of the "
            "squared error of the last rows beyond what the other columns explain"
        )


def find_panel(columns: Iterable[ColumnFacts]) -> RowOrder | None:
    """The series of a panel: a column of moments, and one or two that tell rows of the same moment apart, as stores and articles do. At
    most moments there are most of the series; visits of patients, at times of their own, are no panel. None if the table is none."""
    columns = list(columns)
    times = [
        column for column in columns if column.kind == "moment" and not column.nulls and LEAST_MOMENTS <= column.distinct < column.rows
    ]
    could_be_names = [column for column in columns if column.kind == "text" or (column.kind == "number" and column.is_whole)]
    names = [column for column in could_be_names if column.nulls == 0 and 2 <= column.distinct <= column.rows / LEAST_MOMENTS][:_MOST_NAMES]
    for time in times:
        for by in (*combinations(names, 1), *combinations(names, 2)):
            combined = prod(column.distinct for column in by)
            if _LEAST_FILLED * time.distinct * combined <= time.rows <= time.distinct * combined:
                order = RowOrder(time, by)
                if order.is_unique:
                    return order
    return None


def find_series(columns: Collection[ColumnFacts], target: TargetChoice, order: RowOrder) -> SeriesWindows | None:
    """The windows of a target whose rows are in an order; None if the past says too little."""
    is_series = target.kind == "number" and not target.further and target.column.nulls == 0 and order.time.nulls == 0
    if not is_series or not order.is_unique or target.column.rows < LEAST_ROWS:
        return None
    values_of_series = np.split(target.column.places[order.rows], np.flatnonzero(order.positions == 0)[1:])
    seasons = find_seasons(values_of_series)
    lags = tuple(sorted({1, 2, *seasons}))
    series = SeriesWindows(order, target.column, lags, seasons[0] if seasons else 0)
    gain = _gain_of_past([column for column in columns if column is not target.column], series)
    return replace(series, gain=gain) if gain > LEAST_GAIN else None


def find_seasons(series: Collection[np.ndarray]) -> list[int]:
    """The steps after which series resemble themselves most, in rows, the shortest first: the highest peak of the mean autocorrelation of
    their values without their trends, and the first one that is nearly as high, as a day within a week. Empty if none is beyond chance."""
    rows = int(np.median([len(values) for values in series]))
    most = min(MOST_STEPS, rows // 10)
    if most < 3:
        return []
    correlations = list[np.ndarray]()
    for values in [numbers for numbers in series if len(numbers) >= rows][:_MOST_SERIES]:
        line = np.arange(len(values)) - (len(values) - 1) / 2
        centred = values - values.mean()
        centred = centred - line * ((line * centred).sum() / (line * line).sum())
        spectrum = np.fft.rfft(centred, 2 * len(values))
        correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: most + 2]
        if correlation[0] > 0:  # else the values are on a line
            correlations.append(correlation / correlation[0])
    if not correlations:
        return []
    correlation = np.mean(correlations, axis=0)
    middle = correlation[2 : most + 1]
    is_peak = (middle >= correlation[1:most]) & (middle > correlation[3 : most + 2]) & (middle > max(2 / np.sqrt(rows), 0.1))
    peaks = np.flatnonzero(is_peak) + 2
    if not len(peaks):
        return []
    highest = float(correlation[peaks].max())
    first = int(peaks[correlation[peaks] >= _NEAR_STRONGEST * highest][0])
    return sorted({first, int(peaks[correlation[peaks].argmax()])})


def _gain_of_past(columns: Collection[ColumnFacts], series: SeriesWindows) -> float:
    """The share of the squared error on the last rows that windows take away, beside the other columns; 0 if it may be chance."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415, it takes a second, which other tables need not take
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    order = series.order
    complete = order.rows[order.positions >= max(series.lags)]
    rows = complete[np.argsort(order.time.places[complete], kind="stable")][-MOST_ROWS:]
    if len(rows) < LEAST_ROWS / 2:
        return 0.0
    fitted = int(len(rows) * (1 - _HELD_OUT))
    outputs = series.target.places[rows]
    same_row = list[np.ndarray]()
    for column in columns:
        if column.kind == "moment":
            same_row += calendar_parts(column, rows)
        elif column.kind in ("number", "boolean"):
            same_row.append(finite_numbers(column)[rows])
        elif column.kind == "text":
            same_row.append(frequency_ranks(column)[rows])
    past = [column.places[rows] for column in series.columns]
    errors = []
    with threadpool_limits(1), warnings.catch_warnings():  # sums of several threads differ in their last digits
        warnings.simplefilter("ignore")  # that a column is empty or constant in its rows
        for inputs in (same_row, [*same_row, *past]):
            if not inputs:
                errors.append((outputs[fitted:] - outputs[:fitted].mean()) ** 2)
                continue
            matrix = np.stack(inputs, axis=1)
            model = HistGradientBoostingRegressor(max_iter=60, early_stopping=False, random_state=0).fit(matrix[:fitted], outputs[:fitted])
            errors.append((outputs[fitted:] - model.predict(matrix[fitted:])) ** 2)
    without, with_past = errors
    difference = without - with_past
    if not without.sum() > 0 or difference.mean() < 2 * difference.std() / np.sqrt(len(difference)):
        return 0.0
    return float(difference.sum() / without.sum())

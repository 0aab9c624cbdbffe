"""Series: rows in order of time whose target depends on its own past. A trial on the sample decides; `source.windows` makes the columns.

The target's own season is found by its autocorrelation. Then two small fits predict the last fifth of the rows, with and without the
target's earlier values beside the other columns: only what the past says beyond them makes windows worth their price, that a request needs
the rows before.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.dataset.windows import lag_name, rolling_name
from pipelines.data.features.auto.column_facts import ColumnFacts, TypedColumn
from pipelines.data.features.auto.encoder_choice import Encoding
from pipelines.init.tables.target import TargetChoice

LEAST_ROWS = 100
MOST_ROWS = 6_000
"""The last rows, on which the fits are made: half a second each."""
MOST_STEPS = 1_000
"""The longest season that is sought, in rows; and not more than a tenth of the rows, of which the first lose their windows."""
LEAST_GAIN = 0.05
"""Share of the squared error without the past that the past must take away."""
_NEAR_STRONGEST = 0.8
_HELD_OUT = 0.2


@dataclass(frozen=True)
class SeriesWindows:
    """The windows of a target that depends on its past."""

    order: str
    target: ColumnFacts
    lags: tuple[int, ...]
    """How many rows before."""
    season: int
    """The shortest season in rows; 0 if there is none."""
    is_newest_first: bool = False
    """Whether the table has its rows in the opposite order."""
    gain: float = 0.0
    """Share of the squared error of held-out rows that the past takes away."""

    @property
    def settings(self) -> dict[str, Any]:
        """The section `source.windows`."""
        name = self.target.name
        rolling = {"rolling": {name: {"mean": self.season}}} if self.season else {}
        return {"order": self.order, "lags": {name: list(self.lags)}, **rolling}

    @property
    def columns(self) -> list[ColumnFacts]:
        """The columns that the windows make, in the table's order of rows; NULL where a row has too few rows before it."""
        values, name = self.sort_by_time(self.target.places), self.target.name
        columns = {lag_name(name, lag): _shift(values, lag) for lag in self.lags}
        if self.season:
            columns[rolling_name(name, "mean", self.season)] = _mean_before(values, self.season)
        return [
            ColumnFacts(TypedColumn(name, "double", pa.array(self.sort_by_time(column), from_pandas=True)))
            for name, column in columns.items()
        ]

    def sort_by_time(self, values: np.ndarray) -> np.ndarray:
        """Values of the table's rows with the oldest row first; or, of such values, those in the table's order."""
        return values[::-1] if self.is_newest_first else values

    @property
    def features(self) -> list[Encoding]:
        return [Encoding(column.name, "standardize", "") for column in self.columns]

    @property
    def reason(self) -> str:
        lags = f"{', '.join(map(str, self.lags[:-1]))} and {self.lags[-1]}"
        season = f", and its mean over {self.season}, the season that its autocorrelation shows" if self.season else ""
        return (
            f"{self.target.name} depends on its past: its values {lags} rows before{season}, explain {100 * self.gain:.0f} % of the "
            "squared error of the last rows beyond what the other columns explain"
        )

    @property
    def doubt(self) -> str:
        return f"{self.reason}. A prediction needs the rows before its own; to predict without them, remove source.windows and its features"


def find_series(columns: Sequence[ColumnFacts], target: TargetChoice, order: ColumnFacts) -> SeriesWindows | None:
    """The series of a target whose rows are in the order of a column, the oldest or the newest first; None if the past says too little."""
    is_series = target.kind == "number" and not target.further and target.column.nulls == 0
    if not is_series or order.distinct < order.rows or order.rows < LEAST_ROWS:
        return None
    seasons = find_seasons(target.column.places)  # an autocorrelation is the same backwards
    lags = tuple(sorted({1, 2, *seasons}))
    series = SeriesWindows(order.name, target.column, lags, seasons[0] if seasons else 0, not order.is_increasing)
    gain = _gain_of_past([column for column in columns if column is not target.column], series)
    return replace(series, gain=gain) if gain > LEAST_GAIN else None


def find_seasons(values: np.ndarray) -> list[int]:
    """The steps after which a series resembles itself most, in rows, the shortest first: the highest peak of the autocorrelation of its
    values without their trend, and the first one that is nearly as high, as a day within a week. None if no peak is beyond chance."""
    rows = len(values)
    most = min(MOST_STEPS, rows // 10)
    if most < 3:
        return []
    line = np.arange(rows) - (rows - 1) / 2
    centred = values - values.mean()
    centred = centred - line * ((line * centred).sum() / (line * line).sum())
    spectrum = np.fft.rfft(centred, 2 * rows)
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: most + 2]
    if not correlation[0] > 0:
        return []
    correlation = correlation / correlation[0]
    middle = correlation[2 : most + 1]
    is_peak = (middle >= correlation[1:most]) & (middle > correlation[3 : most + 2]) & (middle > max(2 / np.sqrt(rows), 0.1))
    peaks = np.flatnonzero(is_peak) + 2
    if not len(peaks):
        return []
    highest = float(correlation[peaks].max())
    first = int(peaks[correlation[peaks] >= _NEAR_STRONGEST * highest][0])
    return sorted({first, int(peaks[correlation[peaks].argmax()])})


def _gain_of_past(columns: Sequence[ColumnFacts], series: SeriesWindows) -> float:
    """The share of the squared error on the last rows that windows take away, beside the other columns; 0 if it may be chance."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415, it takes a second, which other tables need not take
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    rows = np.arange(max(series.lags), series.target.rows)[-MOST_ROWS:]
    fitted = int(len(rows) * (1 - _HELD_OUT))
    outputs = series.sort_by_time(series.target.places)[rows]
    same_row = [series.sort_by_time(part)[rows] for column in columns for part in _numbers(column)]
    past = [series.sort_by_time(column.places)[rows] for column in series.columns]
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


def _numbers(column: ColumnFacts) -> list[np.ndarray]:
    """Inputs of a small fit: numbers, the calendar of a moment, the rank of a category by frequency."""
    if column.kind == "moment":
        moments = column.typed.values.cast(pa.timestamp("us"))
        parts = (pc.month(moments), pc.day_of_week(moments), pc.hour(moments))
        return [part.cast(pa.float64()).to_numpy(zero_copy_only=False) for part in parts]
    if column.kind in ("number", "boolean"):
        return [np.where(np.isfinite(column.places), column.places, np.nan)]
    if column.kind != "text":
        return []
    rank = {value: float(number) for number, value in enumerate(column.counts[0])}
    return [np.array([rank.get(value, np.nan) for value in column.typed.values.to_pylist()])]


def _shift(values: np.ndarray, lag: int) -> np.ndarray:
    shifted = np.full(len(values), np.nan)
    shifted[lag:] = values[:-lag]
    return shifted


def _mean_before(values: np.ndarray, count: int) -> np.ndarray:
    """The mean of so many values directly before each."""
    means = np.full(len(values), np.nan)
    sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
    means[count:] = (sums[count:-1] - sums[: -count - 1]) / count + values.mean()
    return means

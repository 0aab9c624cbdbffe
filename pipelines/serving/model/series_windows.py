"""Makes the columns of `source.windows` from the last rows of series, with the values that Spark makes in ETL, to the last digit.

A request has the rows to predict, and those before them, in any order. Sums go from the oldest row to the newest; deviations use Spark's
updates (Welford 1962).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.dataset.windows import HISTORY, WindowSettings, lag_name, rolling_name
from pipelines.config.messages.words import name_list, show_count, verb_for
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.schema import schema_from_text
from pipelines.errors import SourceError


@dataclass(frozen=True)
class SeriesInputs:
    """The rows of series that a model takes in place of the columns that windows make."""

    windows: WindowSettings
    schema: pa.Schema
    """The columns of the rows before the windows: series, order, what windows read, and the features' other columns."""
    window_names: frozenset[str]
    """The columns that the windows make for features."""
    columns: pa.Schema
    """The columns that the features read, with those of the windows."""

    def are_needed(self, names: Sequence[str]) -> bool:
        """Whether rows with columns of these names lack some that windows make."""
        return not self.window_names.issubset(names)

    @property
    def shared_names(self) -> list[str]:
        """The columns that rows have with and without those of windows."""
        return [name for name in self.columns.names if name not in self.window_names]


def series_inputs(manifest: Manifest, columns: pa.Schema) -> SeriesInputs | None:
    """How to make the `columns` that features read from rows of series; None if no feature reads a column of windows."""
    settings = manifest.identity.get("source", {}).get("windows")
    windows = WindowSettings.model_validate(settings) if settings else None
    window_names = frozenset(windows.generated).intersection(columns.names) if windows else frozenset()
    if windows is None or not window_names:
        return None
    names = {*windows.columns_read, *columns.names} - window_names
    schema = pa.schema([field for field in schema_from_text(manifest.raw_schema) if field.name in names])
    return SeriesInputs(windows, schema, window_names, columns)


def add_windows_to_rows(rows: pa.Table, inputs: SeriesInputs) -> tuple[pa.Table, pa.Array]:
    """The columns that the features read, of the rows with enough rows before them, in the order of `rows`. Also, for each of all rows, the
    reason why it is not among them, or NULL. Raises SourceError if a row has no place in its series."""
    windows = inputs.windows
    order, position = _sort(rows, windows)
    is_complete = position >= windows.rows_before
    places = np.flatnonzero(is_complete)
    places = places[np.argsort(order[places])]
    ordered = rows.take(order)
    window_columns = dict(_window_columns(ordered, windows, places))
    columns = [
        (window_columns[field.name] if field.name in window_columns else ordered[field.name].take(places).combine_chunks()).cast(field.type)
        for field in inputs.columns
    ]
    reasons: list[str | None] = [None] * len(rows)
    for row, before in zip(order[~is_complete].tolist(), position[~is_complete].tolist(), strict=True):
        are = f"{show_count(before, 'row')} of its series {verb_for(before)}"
        reasons[row] = f"{are} before it, and source.windows needs {windows.rows_before}"
    return pa.Table.from_arrays(columns, schema=inputs.columns), pa.array(reasons, pa.string())


def _sort(rows: pa.Table, windows: WindowSettings) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the rows, series after series and each in its order, and for each how many rows of its series are before it."""
    names = list(zip(*[rows[name].to_pylist() for name in windows.by], strict=True)) if windows.by else [()] * len(rows)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    series = np.array([numbers[name] for name in names], np.int64)
    keys = pa.table({"series": series, "order": rows[windows.order]})
    if keys["order"].null_count:
        raise SourceError(f"a row has no {windows.order}, and so no place in its series; give it, or leave the row out")
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = pc.sort_indices(keys, [("series", "ascending"), ("order", "ascending")]).to_numpy()
    series, moments = series[order], keys["order"].take(order).combine_chunks()
    is_new = np.concatenate([[True], series[1:] != series[:-1]])[: len(series)]
    is_same = pc.equal(moments.slice(1), moments.slice(0, max(len(moments) - 1, 0))).to_numpy(zero_copy_only=False)
    if repeats := np.flatnonzero(is_same & ~is_new[1:]).tolist():
        series_names = name_list(windows.by) if windows.by else "none"
        raise SourceError(
            f"{windows.order} {moments[repeats[0]].as_py()} comes twice within a series (by: {series_names}); give each row once"
        )
    starts = np.maximum.accumulate(np.where(is_new, np.arange(len(series)), 0))
    return order, np.arange(len(series)) - starts


def _window_columns(rows: pa.Table, windows: WindowSettings, places: np.ndarray) -> Iterator[tuple[str, pa.Array]]:
    """The columns of windows at these places of the sorted rows."""
    for column, counts in windows.lags.items():
        for count in counts:
            yield lag_name(column, count), rows[column].take(places - count).combine_chunks()
    for column, statistics in windows.rolling.items():
        for statistic, counts in statistics.items():
            for count in counts:
                steps = [rows[column].take(places - step).combine_chunks() for step in range(count, 0, -1)]
                yield rolling_name(column, statistic, count), _statistic(statistic, steps)
    if steps_back := windows.history:
        rows_read = (places[:, None] - np.arange(steps_back, 0, -1)).ravel()
        pairs = [_floats(rows[column].take(rows_read).combine_chunks()) for column in windows.columns]
        values, is_valid = (np.stack([pair[part] for pair in pairs], axis=-1).ravel() for part in (0, 1))
        starts = np.arange(len(rows_read) + 1, dtype=np.int32) * len(windows.columns)
        inner = pa.ListArray.from_arrays(starts, pa.array(values, mask=~is_valid))
        yield HISTORY, pa.ListArray.from_arrays(np.arange(len(places) + 1, dtype=np.int32) * steps_back, inner)


def _floats(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values as float64, rounded as Spark does beyond 2^53, and which are not NULL."""
    floats = values.cast(pa.float64(), safe=False).fill_null(0.0)
    return floats.to_numpy(zero_copy_only=False), values.is_valid().to_numpy(zero_copy_only=False)


def _statistic(name: str, steps: Sequence[pa.Array]) -> pa.Array:
    """A statistic of the values that each row has at these steps, the oldest first; NULL where it has too few."""
    if name in ("min", "max"):
        return reduce(pc.min_element_wise if name == "min" else pc.max_element_wise, steps)
    total, mean, squares, count = (np.zeros(len(steps[0])) for _ in range(4))
    for values, is_valid in map(_floats, steps):
        if name == "std":
            difference = values - mean
            share = difference / (count + 1)
            mean = np.where(is_valid, mean + share, mean)
            squares = np.where(is_valid, squares + difference * (difference - share), squares)
        else:
            total = np.where(is_valid, total + values, total)
        count += is_valid
    if name == "std":
        return pa.array(np.sqrt(squares / np.maximum(count - 1, 1)), mask=count < 2)
    return pa.array(total / np.maximum(count, 1) if name == "mean" else total, mask=count == 0)

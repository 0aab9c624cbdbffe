"""`source.windows`: columns that are made of the rows before a row, and of those that a forecast is for. No row of training may hold
values of rows that the model is evaluated on."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from pipelines.config.dataset.dataset import ByColumn, ByFold, ByFraction, ByTime, ByTimeFold, Dataset
from pipelines.config.messages.words import name_list
from pipelines.config.section import Section, Text

HISTORY, FUTURE = "history", "future"
"""Columns of arrays, shape (steps, series)."""
Statistic = Literal["mean", "std", "min", "max", "sum"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | int) else value


def _check_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if repeated := sorted({str(value) for value in values if values.count(value) > 1}):
        raise ValueError(f"{', '.join(repeated)} is named more than once; name it once")
    return values


Columns = Annotated[tuple[Text, ...], BeforeValidator(_as_list), AfterValidator(_check_distinct)]
Rows = Annotated[tuple[PositiveInt, ...], Field(min_length=1), BeforeValidator(_as_list), AfterValidator(_check_distinct)]
"""Numbers of rows; one number stands for a list of it."""


class WindowSettings(Section):
    """Columns that the query's rows get from the rows before them, in series that a column orders. A row without all the rows that its
    windows need, as the first ones of each series, is left out. Rows are counted, not time: where a row is missing, the one before it
    takes its place."""

    order: Text
    """Column of numbers, dates or times that orders the rows of a series; no two rows of a series have the same value."""
    by: Columns = ()
    """Columns whose values name a series, such as a sensor or a shop; NULL is a value. Without any, all rows are one series."""
    lags: dict[Text, Rows] = {}
    """For each column, how many rows before: `{load: [1, 24]}` makes `load_lag_1` and `load_lag_24`."""
    rolling: dict[Text, dict[Statistic, Rows]] = {}
    """For each column, statistics of so many rows directly before a row, which is not among them: `{load: {mean: 24, std: 24}}` makes
    `load_mean_24` and `load_std_24`. NULL and NaN are left out of them; `std` divides by one less than the number of values."""
    columns: Columns = ()
    """Columns of numbers whose values, as double, are in `history` and in `future`."""
    history: NonNegativeInt = 0
    """Rows directly before a row in its column `history`, an array of arrays with the values of `columns`, the oldest row first."""
    horizon: NonNegativeInt = 0
    """Rows in the column `future`, an array like `history`: the row itself and those after it. A row whose future lies in two splits is
    left out."""

    @model_validator(mode="after")
    def _makes_a_column(self) -> "WindowSettings":
        if bool(self.columns) != bool(self.history or self.horizon):
            named, missing = ("columns", "history and horizon are 0") if self.columns else ("history or horizon", "columns has no column")
            raise ValueError(f"{named} is set, but {missing}; set them together, as {{columns: [load], history: 168, horizon: 24}}")
        if short := [name for name, statistics in self.rolling.items() if 1 in statistics.get("std", ())]:
            raise ValueError(f"rolling.{short[0]}.std is of 1 row, which has no deviation; take 2 rows or more")
        if self.order in self.by:
            raise ValueError(f"order and by are both {self.order}, so that each row would be a series; leave it out of by")
        if not list(self.generated):
            raise ValueError("it makes no column; set lags, rolling, or columns with history and horizon")
        return self

    @property
    def generated(self) -> Iterator[str]:
        """Names of the columns that are made."""
        yield from (lag_name(column, rows) for column, counts in self.lags.items() for rows in counts)
        for column, statistics in self.rolling.items():
            yield from (rolling_name(column, statistic, rows) for statistic, counts in statistics.items() for rows in counts)
        yield from [HISTORY] * bool(self.history) + [FUTURE] * bool(self.horizon)

    @property
    def rows_before(self) -> int:
        """How many rows a row needs before it."""
        lags = [rows for counts in self.lags.values() for rows in counts]
        rolling = [rows for statistics in self.rolling.values() for counts in statistics.values() for rows in counts]
        return max([self.history, *lags, *rolling])

    @property
    def columns_read(self) -> dict[str, str]:
        """The settings that name columns of the query, by the column."""
        settings = dict.fromkeys(self.columns, "columns")
        settings |= {column: f"rolling.{column}" for column in self.rolling}
        settings |= {column: f"lags.{column}" for column in self.lags}
        return settings | dict.fromkeys(self.by, "by") | {self.order: "order"}


def complete_scales(values: dict[str, Any]) -> dict[str, Any]:
    """The plain values of a config in which `scale` has the shape and the columns of `source.windows`, where it encodes `history` or
    `future` without naming them."""
    source, dataset = values.get("source"), values.get("dataset")
    windows = source.get("windows") if isinstance(source, dict) else None
    if not isinstance(windows, dict) or not isinstance(dataset, dict):
        return values
    columns, steps = _as_list(windows.get("columns", ())), {HISTORY: windows.get("history"), FUTURE: windows.get("horizon")}
    roles = {role: dataset[role] for role in ("features", "target") if isinstance(dataset.get(role), dict)}

    def complete(name: str, feature: Any) -> Any:
        settings = {"encoder": feature} if isinstance(feature, str) else feature
        column = isinstance(settings, dict) and (settings.get("column") or name)
        if not column or settings.get("encoder") != "scale" or not isinstance(columns, list | tuple) or not steps.get(column):
            return feature
        moments = {} if settings.keys() & {"mean", "deviation"} else {"moments_of": columns}
        return {"shape": [steps[column], len(columns)], **moments, **settings}

    completed = {role: {name: complete(name, feature) for name, feature in features.items()} for role, features in roles.items()}
    return {**values, "dataset": {**dataset, **completed}}


def lag_name(column: str, rows: int) -> str:
    return f"{column}_lag_{rows}"


def rolling_name(column: str, statistic: str, rows: int) -> str:
    return f"{column}_{statistic}_{rows}"


def window_faults(windows: WindowSettings, dataset: Dataset) -> Iterator[str]:
    """A line for each setting of the dataset with which a model would see what it is to predict."""
    yield from _split_faults(windows, dataset)
    known_later = {FUTURE, *windows.columns} if windows.horizon else set()
    for name, settings in dataset.features.items():
        if later := sorted(known_later.intersection(settings.inputs(name))):
            yield (
                f"dataset.features.{name} reads {later[0]}, which is in the row's future, the target of source.windows.horizon; take "
                "history, or lags of the column, instead"
            )


def _split_faults(windows: WindowSettings, dataset: Dataset) -> Iterator[str]:
    split, order = dataset.split, windows.order
    by_time = f"by time, as {{time: {order}, validation: …, test: …}}"
    match split:
        case ByFraction() | ByFold() if split.group not in windows.by:
            remedy = f"split {by_time}"
            if windows.by:
                remedy += f", or give each series to one split, as {{group: {windows.by[0]}}}"
            chance = f"is by {split.group}, which is not in source.windows.by" if split.group else "is by chance"
            series = name_list(windows.by) if windows.by else "none"
            yield (
                f"dataset.split {chance} (by: {series}), but a row of source.windows contains others of its series: those of the test "
                f"would be in rows of training; {remedy}"
            )
        case ByTime() | ByTimeFold() if split.time != order:
            yield (
                f"dataset.split.time is {split.time}, but source.windows.order is {order}: a row's past might be in a later split; "
                f"split {by_time}, or set source.windows.order to {split.time}"
            )
        case ByColumn() if split.validation:
            yield (
                f"dataset.split.validation is {split.validation:g}, which moves rows by chance, but a row of source.windows contains "
                f"others of its series; mark the rows of validation in the column {split.by}, or split {by_time}"
            )

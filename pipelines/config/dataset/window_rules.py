"""Checks that with `source.windows` no row of training holds values of rows that the model is evaluated on."""

from collections.abc import Iterator

from pipelines.config.dataset.dataset import ByColumn, ByFraction, ByTime, Dataset
from pipelines.config.dataset.folds import ByFold, ByTimeFold
from pipelines.config.dataset.windows import FUTURE, WindowSettings
from pipelines.config.messages.counting import name_list


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

"""Splits and folds by time: the period of a row, whose bounds are values of a column."""

from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from pipelines.config.dataset.dataset import ByTime
from pipelines.config.dataset.folds import ByTimeFold
from pipelines.data.sources.files.folder_columns import quote_name
from pipelines.data.versions.manifest import SPLITS
from pipelines.errors import ConfigError


def split_by_time(rows: DataFrame, split: ByTime) -> Column:
    """The index in SPLITS of each row's split; NULL where it has no time. Raises ConfigError unless `validation` and `test` are values of
    the column, in this order."""
    kind, limits, is_ordered = _read_moments(rows, split.time, (split.validation, split.test))
    if not is_ordered:
        raise ConfigError(
            f"dataset.split: column {split.time} is {kind.simpleString()}; validation ({split.validation}) and test ({split.test}) "
            "must be two of its values, in this order"
        )
    time = F.col(quote_name(split.time))
    train, validation, test = range(len(SPLITS))
    return F.when(time < limits[0], train).when(time < limits[1], validation).when(time.isNotNull(), test)


def time_fold(rows: DataFrame, split: ByTimeFold) -> Column:
    """The fold of each row, from 1; NULL where it has no time. Raises ConfigError unless `fold_starts` are values of the column, each
    later than the one before."""
    kind, starts, is_ordered = _read_moments(rows, split.time, split.fold_starts, may_repeat=False)
    if not is_ordered:
        raise ConfigError(
            f"dataset.split.fold_starts: column {split.time} is {kind.simpleString()}; give values of it, each later than the one before "
            f"(got {', '.join(split.fold_starts)})"
        )
    time = F.col(quote_name(split.time))
    return F.when(time.isNotNull(), sum((F.when(time >= start, 1).otherwise(0) for start in starts), F.lit(1)))


def _read_moments(rows: DataFrame, name: str, texts: Sequence[str], may_repeat: bool = True) -> tuple[DataType, list[Column], bool]:
    """The type of a column, the texts in that type, and whether each is a value of it, none before the one that it follows."""
    kind = rows.schema[name].dataType
    moments = [F.lit(text).try_cast(kind) for text in texts]
    in_order = [first <= second if may_repeat else first < second for first, second in pairwise(moments)]
    checks = rows.sparkSession.range(1).select(*[moment.isNotNull() for moment in moments], *in_order).head()
    assert checks is not None
    return kind, moments, all(checks)

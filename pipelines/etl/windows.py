"""Adds the columns of `source.windows` to the query's rows, with Spark's window functions.

1. `check_columns_read` compares the settings with the query's columns, before any data are read.
2. `check_order`        refuses rows that have no place in their series: the order must not depend on partitions or files.
3. `add_windows`        adds the columns, and leaves out rows without all the rows that they need. In ETL those are left out, too, whose
                        future reaches into another split.

A value depends on the rows of its series in their order alone, also in the last digits: Spark computes each frame from its first row to
its last.
"""

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DateType, DoubleType, FloatType, MapType, NumericType, StructType, TimestampNTZType, TimestampType
from pyspark.sql.window import WindowSpec

from pipelines.config.dataset.dataset import ByFold, ByFraction, Split
from pipelines.config.dataset.windows import FUTURE, HISTORY, Statistic, WindowSettings, lag_name, rolling_name
from pipelines.config.messages.words import name_list, suggestion
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.splits.split_assignment import exact_column, split_number

_POSITION, _SPLIT, _LAST_SPLIT = "__position", "__window_split", "__last_split"
_STATISTICS = {"mean": F.avg, "std": F.stddev_samp, "min": F.min, "max": F.max, "sum": F.sum}


def check_columns_read(rows: DataFrame, windows: WindowSettings) -> None:
    """Raises ConfigError unless the query's `rows` have the columns that the windows read, with types that they take."""
    kinds = {field.name: field.dataType for field in rows.schema}
    faults = []
    for column, setting in windows.columns_read.items():
        if column not in kinds:
            hint = suggestion(column, rows.columns)
            columns = f"it gives {name_list(rows.columns, column)}"
            faults.append(f"source.windows.{setting}: the query gives no column {column}; {f'{hint} ({columns})' if hint else columns}")
    if not faults and not isinstance(kinds[windows.order], NumericType | DateType | TimestampType | TimestampNTZType):
        kind = kinds[windows.order].simpleString()
        faults.append(
            f"source.windows.order: column {windows.order} is {kind}, which has no order of time; CAST it to timestamp, date or a number "
            "in source.query"
        )
    faults += [
        f"source.windows.by: column {column} is {kinds[column].simpleString()}, which names no series; take a column of single "
        "values, or CAST it to string in source.query"
        for column in windows.by
        if isinstance(kinds.get(column), ArrayType | StructType | MapType)
    ]
    for column in dict.fromkeys([*windows.rolling, *windows.columns]):
        if column in kinds and not isinstance(kinds[column], NumericType):
            setting = f"rolling.{column}" if column in windows.rolling else "columns"
            faults.append(
                f"source.windows.{setting}: column {column} is {kinds[column].simpleString()}, and not a number; CAST it in source.query"
            )
    lower = {name.lower() for name in rows.columns}
    if repeated := [name for name in windows.generated if name.lower() in lower]:
        faults.append(f"source.windows makes {name_list(repeated)}, and so does source.query; rename it there with AS")
    if faults:
        raise ConfigError("\n".join(faults))


def check_order(rows: DataFrame, windows: WindowSettings, split: Split | None = None) -> int:
    """The number of rows that the query gives. Raises SourceError if a row has no value of `order`, or that of another row of its series.
    Raises it also if a split by a column goes back to an earlier one within a series."""
    counts = _count_misplaced(rows, windows, split)
    if counts["unplaced"]:
        raise SourceError(
            f"source.windows.order: {counts['unplaced']:,} of {counts['rows']:,} rows have no {windows.order}, and so no place in their "
            f"series; add WHERE {windows.order} IS NOT NULL to source.query"
        )
    if counts["tie"]:
        raise SourceError(
            f"source.windows.order: {windows.order} comes twice within a series, as {counts['first_tie']} does "
            f"({counts['tie']:,} times in all), and neither row is before the other; "
            "make one row of them by GROUP BY in source.query, or name in "
            f"source.windows.by what tells them apart (by: {name_list(windows.by) if windows.by else 'none'})"
        )
    if counts["return"]:
        column = getattr(split, "by", "")
        raise SourceError(
            f"dataset.split.by: within a series, {column} goes back to an earlier split {counts['return']:,} times, as at "
            f"{counts['first_return']}; in a series, let all rows of train come before those of validation, and these before those of "
            "test, or give each series to one split"
        )
    return int(counts["rows"])


def _count_misplaced(rows: DataFrame, windows: WindowSettings, split: Split | None) -> Row:
    """The number of `rows`; of them `unplaced`, without a value of `order`; each `tie` with another row; each `return` to an earlier split;
    and the first of both."""
    order, series = exact_column(windows.order), _series(windows)
    number = _split_number(rows, split)
    is_return = number < F.max(number).over(series.rowsBetween(Window.unboundedPreceding, -1)) if number is not None else F.lit(False)
    texts = [F.coalesce(exact_column(name).cast("string"), F.lit("NULL")) for name in (*windows.by, windows.order)]
    names = [f"{name} " for name in (*windows.by, windows.order)]
    place = F.concat_ws(", ", *[F.concat(F.lit(name), text) for name, text in zip(names, texts, strict=True)])
    is_unplaced = order.isNull()
    if isinstance(rows.schema[windows.order].dataType, FloatType | DoubleType):
        is_unplaced |= F.isnan(order)
    places = rows.select(
        is_unplaced.alias("unplaced"),
        F.when(order == F.lag(order).over(series), place).alias("tie"),
        F.when(is_return, place).alias("return"),
    )
    kinds = ("tie", "return")
    counts_and_firsts = [column for name in kinds for column in (F.count(name).alias(name), F.min(name).alias(f"first_{name}"))]
    counts = places.agg(F.count("*").alias("rows"), F.count_if("unplaced").alias("unplaced"), *counts_and_firsts).head()
    assert counts is not None, "an aggregate has a row"
    return counts


def add_windows(rows: DataFrame, windows: WindowSettings, split: Split | None = None) -> DataFrame:
    """The rows that have all the rows before them that the windows need, with the columns that those make. Given a `split`, the rows have
    a future as well, all of it in one split; without it, as for a prediction, no row has that column."""
    columns = _window_columns(windows)
    series = _series(windows)
    columns[_POSITION] = F.row_number().over(series)
    is_complete = F.col(_POSITION) > windows.rows_before
    if split is None or not windows.horizon:
        columns.pop(FUTURE, None)
    else:
        is_complete &= F.size(FUTURE) == windows.horizon
        number = _split_number(rows, split)
        if number is not None:
            columns |= {_SPLIT: number, _LAST_SPLIT: F.lead(number, windows.horizon - 1).over(series)}
            is_complete &= F.col(_SPLIT).eqNullSafe(F.col(_LAST_SPLIT))
    return rows.withColumns(columns).where(is_complete).drop(_POSITION, _SPLIT, _LAST_SPLIT)


def describe_left_out(windows: WindowSettings, rows: int, complete_rows: int) -> str:
    """How many of the query's `rows` are not in the dataset, and why, in one line; empty if all are."""
    if rows == complete_rows:
        return ""
    reasons = [f"have {windows.rows_before:,} rows of their series before them"] if windows.rows_before else []
    reasons += [f"have a future of {windows.horizon:,} rows in one split"] if windows.horizon else []
    return f"source.windows: {rows - complete_rows:,} of the query's {rows:,} rows are left out, since they do not {' or '.join(reasons)}"


def _window_columns(windows: WindowSettings) -> dict[str, Column]:
    def rolling(column: str, statistic: Statistic) -> Column:
        """Minimum and maximum have the type of the column; the others are double, as sums of integers might overflow. NaN is left out like
        NULL, which it is to a served model."""
        values = exact_column(column)
        values = F.when(~F.isnan(values.cast("double")), values)
        return _STATISTICS[statistic](values if statistic in ("min", "max") else values.cast("double"))

    series = _series(windows)
    columns = {
        lag_name(column, rows): F.lag(exact_column(column), rows).over(series) for column, counts in windows.lags.items() for rows in counts
    }
    columns |= {
        rolling_name(column, statistic, rows): rolling(column, statistic).over(series.rowsBetween(-rows, -1))
        for column, statistics in windows.rolling.items()
        for statistic, counts in statistics.items()
        for rows in counts
    }
    values = F.collect_list(F.array(*[exact_column(column).cast("double") for column in windows.columns]))
    if windows.history:
        columns[HISTORY] = values.over(series.rowsBetween(-windows.history, -1))
    if windows.horizon:
        columns[FUTURE] = values.over(series.rowsBetween(0, windows.horizon - 1))
    return columns


def _series(windows: WindowSettings) -> WindowSpec:
    return Window.partitionBy(*[exact_column(name) for name in windows.by]).orderBy(exact_column(windows.order))


def _split_number(rows: DataFrame, split: Split | None) -> Column | None:
    """The index of each row's split; None where all rows of a series have the same."""
    return None if split is None or isinstance(split, ByFraction | ByFold) else split_number(rows, split)

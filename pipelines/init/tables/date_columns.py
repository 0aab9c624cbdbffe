"""Columns of dates and times: those that stand in numbers or in several columns, the order that they give the rows, and their parts, which
the query makes."""

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.auto.column_facts import ColumnFacts, TypedColumn, has_identifier_name
from pipelines.data.features.auto.encoder_choice import free_name
from pipelines.init.tables.date_formats import pattern_form
from pipelines.init.tables.header import MOST_CHARACTERS
from pipelines.init.tables.number_formats import MOST_WRONG, share_of_looks
from pipelines.init.tables.sample import SampledTable
from pipelines.init.tables.sql import escape_braces, sql_name

_PARTS = {"month": pc.month, "dayofweek": pc.day_of_week, "hour": pc.hour}
"""Functions of Spark SQL with few values, and those of Arrow that tell whether they vary."""
_MOST_DURATIONS = 3
LEAST_MOMENTS = 20
"""Different moments below which a split by time would be one of few groups of rows."""
_FIRST_YEAR, _LAST_YEAR = 1900, 2100
_SEASONS_MICROSECONDS = 3 * 365 * 86_400e6
"""Rows split by time that span less have months in the test that training has not seen."""
_UNITS = {"seconds": ("timestamp_seconds", 1), "milliseconds": ("timestamp_millis", 1_000), "microseconds": ("timestamp_micros", 1_000_000)}
"""Functions of Spark SQL for times since 1970, and units a second."""
_NAME_OF_A_MOMENT = re.compile(
    r"(^|_)(date|day|month|period|time|timestamp|ts|epoch|unix\w*|created|updated|utc|yyyymm\w*|ym)($|_)|_at$", re.IGNORECASE
)
_PARTS_OF_A_MOMENT = {"year": (1800, 2200), "month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59)}
"""Columns that make a moment together, and their least and largest values."""
_TIMES_OF_DAY = ("H:mm", "H:mm:ss", "H.mm.ss")
"""Patterns of Spark for times of day that stand beside a date."""


@dataclass(frozen=True)
class MomentPart:
    """A column that the query adds."""

    name: str
    sql: str
    is_category: bool
    has_nulls: bool


def moment_parts(
    columns: Sequence[ColumnFacts], is_split_by_time: bool, expression: Callable[[ColumnFacts], str], derived: Collection[str] = ()
) -> Iterator[MomentPart]:
    """The parts of each moment that vary, and the seconds between moments of one row. Of moments that are months or years, the day of the
    week says nothing. Days, and months of less than three years, are left out if the rows are split by time, since those of the test are
    never seen in training. `expression` is the SQL of a moment; months and hours of those that are `derived` from columns are such columns
    themselves."""
    for column in columns:
        values = column.filled.cast(pa.timestamp("us"))
        nulls = column.nulls > 0
        if not is_split_by_time:
            yield MomentPart(f"{column.name}_day", f"datediff({expression(column)}, DATE '1970-01-01')", False, nulls)
        for part, arrow_part in _PARTS.items():
            is_column = part != "dayofweek" and column.name in derived
            is_unseen_season = part == "month" and is_split_by_time and not np.ptp(column.places) > _SEASONS_MICROSECONDS
            follows_from_month = part == "dayofweek" and _are_months(values)
            if not (is_column or is_unseen_season or follows_from_month) and len(pc.unique(arrow_part(values))) > 1:
                yield MomentPart(f"{column.name}_{part}", f"{part}({expression(column)})", True, nulls)
    times = [column for column in columns if pa.types.is_timestamp(column.typed.values.type)][: _MOST_DURATIONS + 1]
    for first, second in itertools.pairwise(times):
        sql = f"unix_timestamp({expression(second)}) - unix_timestamp({expression(first)})"
        yield MomentPart(f"seconds_from_{first.name}_to_{second.name}"[:MOST_CHARACTERS], sql, False, first.nulls + second.nulls > 0)


def find_order(columns: Sequence[ColumnFacts]) -> ColumnFacts | None:
    """The first column of enough different moments by which all rows are in order, forwards or backwards; None if there is none."""
    candidates = (column for column in columns if column.distinct >= LEAST_MOMENTS and _is_in_order(column))
    return next((column for column in candidates if time_split(column)), None)


def time_split(order: ColumnFacts) -> dict[str, Any] | None:
    """The section `dataset.split` whose validation and test begin with the last two tenths of the rows, in order of a column of moments or
    numbers; None if there are too few different ones."""
    in_order = pc.take(order.filled, pc.sort_indices(order.filled))
    first, *bounds = (in_order[int(len(in_order) * share)].as_py() for share in (0, 0.8, 0.9))
    validation, test = (bound.replace(microsecond=0) if isinstance(bound, datetime) else bound for bound in bounds)
    if not first < validation < test:
        return None
    texts = (bound if isinstance(bound, int) else str(bound) for bound in (validation, test))
    return {"time": order.name, **dict(zip(("validation", "test"), texts, strict=True))}


def has_equal_steps(column: ColumnFacts) -> bool:
    """Whether whole numbers rise, or fall, by as much from each row to the next, as years do, and numbers of rows."""
    if column.kind != "number" or not column.is_whole or column.nulls or len(column.places) < 2:
        return False
    steps = np.diff(column.places)
    return bool(steps[0]) and bool(np.all(steps == steps[0]))


def add_moments(table: SampledTable, targets: Sequence[ColumnFacts] = ()) -> SampledTable:
    """The table with moments in place of whole numbers that stand for some, and of parts in several columns. Targets stay as they are."""
    columns = list[ColumnFacts]()
    for raw in table.columns:
        is_target = any(raw is target for target in targets)
        column = raw if is_target else _moment_of_numbers(raw)
        is_behind_target = any(columns[-1] is target for target in targets) if columns else False
        if columns and not (is_target or is_behind_target) and (moment := _moment_of_day(columns[-1], column)):
            columns[-1] = moment  # of a date and the times of day in the next column, under the name of the date
        else:
            columns.append(column)
    if any(column.kind == "moment" for column in columns) or not (moment := _moment_of_parts(columns, targets)):
        return replace(table, columns=columns)
    return replace(table, columns=[moment, *columns], derived=(moment.name,))


def _moment_of_day(day: ColumnFacts, time: ColumnFacts) -> ColumnFacts | None:
    """The moment of a date and a time of day; None if they are none."""
    if not pa.types.is_date(day.typed.values.type) or time.kind != "text" or time.typed.sql:
        return None
    shares = {pattern: share_of_looks(time.filled, pattern_form(pattern).look) for pattern in _TIMES_OF_DAY}
    pattern = next((pattern for pattern, share in shares.items() if share >= 1 - MOST_WRONG), "")
    if not pattern:
        return None
    form = pattern_form(f"yyyy-MM-dd {pattern}")
    texts = pc.binary_join_element_wise(*(column.typed.values.cast(pa.string()) for column in (day, time)), " ")
    day_sql = (day.typed.sql or "{0}").replace("{}", "{0}")
    sql = form.sql.replace("{0}", f"concat(CAST({day_sql} AS string), ' ', {escape_braces(sql_name(time.name))})")
    doubt = f"{day.name} and {time.name} are one moment, under the name {day.name}"
    doubts = "; ".join(filter(None, (day.typed.doubt, doubt)))
    return ColumnFacts(TypedColumn(day.name, day.typed.ddl, form.moments(texts), sql, doubts))


def _is_in_order(column: ColumnFacts) -> bool:
    """Whether no row is before the one above it, or none after."""
    return column.is_increasing or (column.nulls == 0 and bool(np.all(np.diff(column.places) <= 0)))


def _moment_of_numbers(column: ColumnFacts) -> ColumnFacts:
    """The column as moments, if its whole numbers are days such as 20210301, months such as 202103, or times since 1970."""
    typed = column.typed
    if column.kind != "number" or typed.ddl == "double" or not len(column.filled) or has_identifier_name(column):
        return column
    numbers = column.numbers
    counts_rows = numbers[-1] - numbers[0] < 2 * column.rows
    has_name = bool(_NAME_OF_A_MOMENT.search(column.name))
    is_sure = has_name or (_is_in_order(column) and column.distinct > column.rows / 2 and not counts_rows)
    for pattern, digits in (("yyyyMMdd", 8), ("yyyyMM", 6)):
        form = pattern_form(pattern)
        wrong = np.sum((numbers < 10 ** (digits - 1)) | (numbers >= 10**digits))
        if not (is_sure or (digits == 8 and column.distinct >= LEAST_MOMENTS)) or wrong > MOST_WRONG * len(numbers):
            continue
        moments = form.moments(typed.values.cast(pa.large_string()))
        years = pc.min_max(pc.year(moments.drop_null())).as_py()
        are_years = years["min"] is not None and years["min"] >= _FIRST_YEAR and years["max"] <= _LAST_YEAR
        if moments.null_count - typed.values.null_count <= MOST_WRONG * len(column.filled) and are_years:
            sql = form.sql.replace("{0}", f"CAST({typed.sql or '{0}'} AS string)")
            return ColumnFacts(TypedColumn(column.name, typed.ddl, moments, sql, f"{column.name} is a date written {pattern}"))
    for unit, (function, per_second) in _UNITS.items():
        first, last = (np.datetime64(day, "s").astype(np.int64) * per_second for day in ("1990-01-01", "2040-01-01"))
        if not (first <= numbers[0] and numbers[-1] < last and column.distinct > 1):
            continue
        if not is_sure:
            doubt = f"{column.name} is a number; for a time in {unit} since 1970, write {function}({sql_name(column.name)}) in source.query"
            return ColumnFacts(replace(typed, doubt=doubt))
        moments = pc.multiply(typed.values.cast(pa.int64()), 1_000_000 // per_second).cast(pa.timestamp("us"))
        sql = f"{function}({typed.sql or '{0}'})"
        return ColumnFacts(TypedColumn(column.name, typed.ddl, moments, sql, f"{column.name} is a time in {unit} since 1970, in UTC"))
    return column


def _moment_of_parts(columns: Sequence[ColumnFacts], targets: Sequence[ColumnFacts]) -> ColumnFacts | None:
    """The moment whose year, month, day, hour and minute are columns of their own."""
    by_name = {column.name.lower(): column for column in columns}
    for name in by_name:
        if not (match := re.fullmatch("(.*?)(?<![a-z])year(?![a-z])(.*)", name)):
            continue
        parts = [by_name.get(f"{match[1]}{part}{match[2]}") for part in _PARTS_OF_A_MOMENT]
        present = list(itertools.takewhile(lambda pair: pair[0] is not None, zip(parts, _PARTS_OF_A_MOMENT.values(), strict=True)))
        columns_of_parts = [column for column, _ in present if column]
        has_target = any(column is target for column in columns_of_parts for target in targets)
        are_parts = all(
            column is not None
            and column.kind == "number"
            and not column.typed.sql
            and column.typed.ddl in ("int", "long")
            and least <= column.numbers[0]
            and column.numbers[-1] <= most
            for column, (least, most) in present
        )
        if len(present) < 2 or has_target or not are_parts:
            continue
        return _join_parts(f"{match[1]}{'time' if len(present) > 3 else 'date'}{match[2]}", columns_of_parts, set(by_name))
    return None


def _join_parts(name: str, parts: Sequence[ColumnFacts], used_names: set[str]) -> ColumnFacts | None:
    """The column that the query makes of the parts; None if they are no days of the calendar."""
    texts = pc.binary_join_element_wise(
        *(pc.utf8_lpad(column.typed.values.cast(pa.string()), 4 if place == 0 else 2, "0") for place, column in enumerate(parts)), " "
    )
    form = pattern_form(" ".join(("yyyy", "MM", "dd", "HH", "mm")[: len(parts)]))
    moments = form.moments(texts)
    if moments.null_count - texts.null_count > MOST_WRONG * len(texts):
        return None
    integers = [f"CAST({sql_name(column.name)} AS int)" if column.typed.ddl == "long" else sql_name(column.name) for column in parts]
    integers += ["1" if place < 3 else "0" for place in range(len(parts), 6)]
    timestamp = f"try_make_timestamp({', '.join(integers)})"
    sql = f"CAST({timestamp} AS date)" if form.is_date else timestamp
    names = ", ".join(column.name for column in parts)
    name = free_name(name, used_names)
    return ColumnFacts(TypedColumn(name, "string", moments, escape_braces(sql), f"{name} is made of {names}"))


def _are_months(moments: pa.Array) -> bool:
    """Whether the moments stand for months, quarters or years: all are the same day of a month, or all the last one."""
    next_days = pc.add(moments, pa.scalar(timedelta(days=1), pa.duration("us")))
    return any(len(pc.unique(pc.day(days))) == 1 for days in (moments, next_days)) and len(pc.unique(pc.month(moments))) > 1

"""Dates and times as parts, which the query makes."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.init.tables.column_names import MOST_CHARACTERS

_PARTS = {"month": pc.month, "dayofweek": pc.day_of_week, "hour": pc.hour}
"""Functions of Spark SQL with few values, and those of Arrow that tell whether they vary."""
_MOST_DURATIONS = 3


@dataclass(frozen=True)
class MomentPart:
    """A column that the query adds."""

    name: str
    sql: str
    is_category: bool
    has_nulls: bool


def moment_parts(columns: Sequence[ColumnFacts], is_split_by_time: bool, expression: Callable[[ColumnFacts], str]) -> Iterator[MomentPart]:
    """The parts of each moment that vary, and the seconds between moments of one row. Days and short years are left out if the rows are
    split by time, since those of the test are never seen in training. `expression` is the SQL of a moment."""
    for column in columns:
        values = column.filled.cast(pa.timestamp("us"))
        nulls = column.nulls > 0
        if not is_split_by_time:
            yield MomentPart(f"{column.name}_day", f"datediff({expression(column)}, DATE '1970-01-01')", False, nulls)
        for part, arrow_part in _PARTS.items():
            is_seasonal = part != "month" or not is_split_by_time or _spans_years(column)
            if is_seasonal and len(pc.unique(arrow_part(values))) > 1:
                yield MomentPart(f"{column.name}_{part}", f"{part}({expression(column)})", True, nulls)
    times = [column for column in columns if column.typed.ddl == "timestamp"][: _MOST_DURATIONS + 1]
    for first, second in itertools.pairwise(times):
        sql = f"unix_timestamp({expression(second)}) - unix_timestamp({expression(first)})"
        yield MomentPart(f"seconds_from_{first.name}_to_{second.name}"[:MOST_CHARACTERS], sql, False, first.nulls + second.nulls > 0)


def time_split(columns: Sequence[ColumnFacts]) -> tuple[ColumnFacts, str, str] | None:
    """The only moment by which all rows are in order, and where the last two tenths of the rows begin; None if there is none."""
    ordered = [column for column in columns if column.is_increasing and column.distinct > 0.5 * column.rows]
    if len(columns) != 1 or not ordered:
        return None
    (column,) = ordered
    bounds = [column.filled[int(len(column.filled) * share)].as_py() for share in (0.8, 0.9)]
    days = (bound.date() if isinstance(bound, datetime) else bound for bound in bounds)
    times = days if column.typed.ddl == "date" else (bound.replace(microsecond=0) for bound in bounds)
    validation, test = map(str, times)
    return (column, validation, test) if validation < test else None


def _spans_years(column: ColumnFacts) -> bool:
    days = np.ptp(column.places) / 86_400e6
    return bool(days > 3 * 365)

"""Values that cannot be: conditions of `source.expect` for quantities whose rare values have the wrong sign or size, and numbers that may
stand for a missing value."""

import re
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.encoder_choice import free_name
from pipelines.init.sql import sql_name
from pipelines.init.tables.column_names import section_name

_NEVER_NEGATIVE = re.compile(
    r"(^|_)(age|ages|count|counts|hours?|minutes?|seconds?|days?|years?|distance|duration|weight|height|length|width|size|area|price|"
    r"population|rooms|passengers|speed|quantity|qty)($|_)",
    re.IGNORECASE,
)
_AGE = re.compile(r"(^|_)age$", re.IGNORECASE)
_OLDEST = 120
MOST_IMPOSSIBLE = 0.005
"""Share of the rows beyond which a value is no mistake; a version may have 1 % of refused rows for all reasons together."""

_LEAST_MARK, _LEAST_MARKED = 99, 0.005
"""Size of a number that marks missing values, such as 999, and the share of the rows that has it."""


def expectations(columns: Sequence[ColumnFacts]) -> dict[str, tuple[str, str]]:
    """Condition and reason by name, for columns whose name says what they measure."""
    conditions, used_names = {}, set[str]()
    for column in columns:
        if column.kind != "number" or not _NEVER_NEGATIVE.search(column.name) or column.typed.sql:
            continue
        negative = int(np.sum(column.numbers < 0))
        too_old = int(np.sum(column.numbers > _OLDEST)) if _AGE.search(column.name) else 0
        if not 0 < negative + too_old <= MOST_IMPOSSIBLE * column.rows:
            continue
        name = sql_name(column.name)
        condition = f"{name} BETWEEN 0 AND {_OLDEST}" if too_old else f"{name} >= 0"
        nullable = f"{condition} OR {name} IS NULL" if column.nulls else condition
        rule = free_name(section_name(f"plausible {column.name}"), used_names)
        conditions[rule] = (nullable, f"{negative + too_old:,} of {column.rows:,} rows are not")
    return conditions


def missing_value_doubts(columns: Sequence[ColumnFacts], feature_names: Collection[str]) -> Iterator[str]:
    """A line for each column with a number far from all others in many rows, as -999 is among temperatures. Of a column without a feature
    of its own, among those of the draft, ETL chooses what NULL becomes."""
    for column in columns:
        if column.kind != "number" or column.distinct < 3:
            continue
        for mark in (column.numbers[0], column.numbers[-1]):
            others = column.numbers[column.numbers != mark]
            share = 1 - len(others) / len(column.numbers)
            gap = min(abs(mark - others[0]), abs(mark - others[-1]))
            is_far = gap >= others[-1] - others[0] or (mark < 0 <= others[0])
            if is_far and abs(mark) >= _LEAST_MARK and mark == int(mark) and share >= _LEAST_MARKED:
                name = column.name
                impute = ", and its feature impute: median" if name in feature_names else ""
                yield (
                    f"{mark:.0f} of {name}, in {100 * share:.1f} % of the rows and far from all others, is a number; if it marks a missing "
                    f"value, give nullif({sql_name(name)}, {mark:.0f}) AS {sql_name(name)} in source.query{impute}"
                )

"""Values that cannot be: conditions of `source.expect` for quantities whose rare values have the wrong sign or size."""

import re
from collections.abc import Sequence

import numpy as np

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.features.auto.encoder_choice import free_name
from pipelines.init.tables.column_names import section_name, sql_name

_NEVER_NEGATIVE = re.compile(
    r"(^|_)(age|ages|count|counts|hours?|minutes?|seconds?|days?|years?|distance|duration|weight|height|length|width|size|area|price|"
    r"population|rooms|passengers|speed|quantity|qty)($|_)",
    re.IGNORECASE,
)
_AGE = re.compile(r"(^|_)age$", re.IGNORECASE)
_OLDEST = 120
MOST_IMPOSSIBLE = 0.005
"""Share of the rows beyond which a value is no mistake; a version may have 1 % of refused rows for all reasons together."""


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

"""Rows on which engines are known to differ: NULL, NaN, extremes, odd text, and values around the query's constants."""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from pipelines.data.rowwise.untranslatable import UntranslatableError

_MIXED_ROWS = 2_000
"""Rows with hostile values in several columns, in addition to those with one."""
_MIXED_SHARE = 0.3
_TEXTS = (
    "", " ", " a ", "ß", "İ", "ǆ", "e\u0301", "😀x", "1", "-1", " 1 ", "1.5", "1e3", "abc", "NaN", "true", "\t\n", "%", "'", "9" * 21,
    "2026-02-29", "2026", "2026-1-2", " 2026-01-02", "2026-01-02T03:04:05", "today", "infinity", "1f", "1d", ".5", "5.", "+1", "0x1f",
    "1_000", "yes", "t", "on", "TRUE", "no", "y", "0", "\u00a0a\u3000", "\x00", "a\u200bb",
)  # fmt: skip
_FLOATS = (0.0, -0.0, 0.1, 0.5, 1.5, 2.5, -0.5, -1.5, 1e300, 5e-324, math.nan, math.inf, -math.inf)
_AROUND = ("{}", " {}", "{} x", "x{}y")
_DIGITS = 76
"""Of decimals: Python rounds to 28 by default, and Spark has up to 38 on either side of the point."""
_DATES = (date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31))


def hostile_rows(sample: pa.Table, names: Iterable[str], literals: Iterable[str]) -> pa.Table:
    """Rows of the sample with a hostile value in one or several of the named columns. The result is deterministic.

    Raises UntranslatableError for a type that is not compared.
    """
    chance = np.random.default_rng(0)
    with localcontext(prec=_DIGITS):
        values = {name: _values(sample.schema.field(name).type, sorted(literals)) for name in names}
    single = [(name, value) for name, column_values in values.items() for value in column_values]
    count = len(single) + _MIXED_ROWS
    base = sample.take(pa.array(np.arange(count) % len(sample)))
    columns = dict(zip(base.column_names, base.columns, strict=True))
    for name, column_values in values.items():
        is_replaced = np.concatenate([[column == name for column, _ in single], chance.random(_MIXED_ROWS) < _MIXED_SHARE])
        replacements = [value if column == name else None for column, value in single] + [
            column_values[i] for i in chance.integers(0, len(column_values), _MIXED_ROWS)
        ]
        columns[name] = pc.if_else(pa.array(is_replaced.astype(bool)), pa.array(replacements, base[name].type), base[name])
    return pa.table(columns, schema=sample.schema)


def _values(kind: pa.DataType, literals: list[str]) -> list[Any]:
    numbers = [sign * Decimal(text) for text in literals if re.fullmatch(r"[0-9]+(\.[0-9]+)?(e-?[0-9]{1,2})?", text) for sign in (1, -1)]
    if types.is_boolean(kind):
        return [None, True, False]
    if types.is_integer(kind):
        limit = 2 ** (kind.bit_width - 1)
        integers = [0, 1, -1, limit - 1, -limit, *(int(number) + step for number in numbers for step in (-1, 0, 1))]
        return [None, *(value for value in integers if -limit <= value < limit)]
    if types.is_floating(kind):
        floats = [
            value for number in map(float, numbers) for value in (number, float(np.float32(number)), math.nextafter(number, math.inf))
        ]
        narrow = kind.bit_width < 64
        return [None, *(float(np.float32(value)) if narrow else value for value in (*_FLOATS, *floats) if not narrow or value != 1e300)]
    if types.is_decimal(kind):
        step = Decimal(1).scaleb(-kind.scale)
        most = (10**kind.precision - 1) * step
        around = [number.quantize(step) + offset for number in numbers if abs(number) < most for offset in (-step, Decimal(0), step)]
        return [None, Decimal(0), *(value for value in (most, -most, *around) if abs(value) <= most)]
    if types.is_string(kind):
        return [None, *_TEXTS, *(text.format(literal) for literal in literals for text in _AROUND), *(text.upper() for text in literals)]
    if types.is_date32(kind):
        return [None, *_DATES, *(day + timedelta(step) for day in _days(literals) for step in (-1, 0, 1))]
    raise UntranslatableError(f"values of type {kind} are compared with Spark only where the query passes them through unchanged")


def _days(literals: list[str]) -> Iterator[date]:
    for text in literals:
        if re.fullmatch(r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}", text):
            with suppress(ValueError):  # not a date, such as 2026-02-29
                yield date.fromisoformat(text)

"""Queries that work row by row, as expressions of raw columns, and the odd rows on which engines are compared. No Spark."""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from pipelines.etl.hostile import hostile_rows
from pipelines.rowwise.evaluate import Evaluator
from pipelines.rowwise.translate import rowwise, sql_of


def test_conditions_in_the_same_words_are_all_asked() -> None:
    query = "SELECT * FROM (SELECT y AS x FROM (SELECT * FROM t WHERE x > 0) WHERE x > 0) WHERE x > 0"
    (found,) = rowwise(query, {"t": ["x", "y"]})
    asked = {name: sql_of(condition) for name, condition in found.conditions.items()}
    assert asked == {"WHERE x > 0": '"x" > 0', "WHERE x > 0 (2)": '"x" > 0', "WHERE x > 0 (3)": '"y" > 0'}
    rows = pa.table({"x": [1, 0, 1], "y": [1, 1, 0]})
    assert Evaluator().refused(rows, asked).to_pylist() == [None, "WHERE x > 0", "WHERE x > 0 (3)"]


@pytest.mark.parametrize(("precision", "scale"), [(8, 2), (30, 4), (38, 18), (38, 38), (38, 0)])
def test_hostile_decimals_have_all_digits_of_their_type(precision: int, scale: int) -> None:
    kind = pa.decimal128(precision, scale)
    rows = hostile_rows(pa.table({"m": pa.array([Decimal(0), None], kind)}), ["m"], {"1.25", "12345678901234567890", "1e-9"})
    found = set(rows["m"].to_pylist())
    assert rows.schema.field("m").type == kind
    assert {Decimal(f"{sign}{'9' * precision}e-{scale}") for sign in ("", "-")} <= found
    if precision - scale >= 20:
        assert Decimal(f"12345678901234567890.{'0' * (scale - 1)}1" if scale else "12345678901234567891") in found


def test_a_text_that_is_no_day_leaves_the_other_days() -> None:
    rows = hostile_rows(pa.table({"d": pa.array([date(2000, 1, 1)], pa.date32())}), ["d"], {"2026-02-29", "2026-03-01"})
    assert date(2026, 2, 28) in rows["d"].to_pylist()

"""Where a stratified split cuts the rows of each value, as plain numbers."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from config_remedies import VALUES
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import parse
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.splits.strata import Stratum, apportion, check_cardinality, describe_missing, nearest_limit

SHARES = [Fraction(8, 10), Fraction(1, 10), Fraction(1, 10)]


@given(st.lists(st.integers(1, 2_000), max_size=40), st.lists(st.integers(1, 20), min_size=3, max_size=3))
def test_each_split_gets_its_share_rounded_up_or_down_and_train_a_row(rows: list[int], weights: list[int]) -> None:
    shares = [Fraction(weight, sum(weights)) for weight in weights]
    for total, counts in zip(rows, apportion(rows, shares), strict=True):
        assert sum(counts) == total and counts[0] > 0
        assert all(abs(count - share * total) < 1 for count, share in zip(counts, shares, strict=True))


def test_small_values_together_have_the_shares_too() -> None:
    counts = np.array(apportion([3] * 1_000, SHARES))
    assert counts.sum(0).tolist() == [2_400, 300, 300]
    assert apportion([1, 1], SHARES) == [[1, 0, 0], [1, 0, 0]]
    assert apportion([5], [Fraction(4, 5), Fraction(0), Fraction(1, 5)]) == [[4, 0, 1]]
    assert apportion([], SHARES) == []


@pytest.mark.parametrize(
    ("units", "position", "before", "limit"),
    [
        ([(10, 1), (20, 1), (30, 1)], 2, 0, 30),
        ([(10, 1), (20, 5), (30, 1)], 2, 0, 20),  # 1 row is nearer to 2 than 6
        ([(10, 1), (20, 5), (30, 1)], 5, 0, 21),
        ([(10, 9)], 2, 0, 11),  # something is before every cut
        ([(10, 9)], 2, 1, 10),
        ([(10, 9)], 0, 0, 10),  # but that of an empty share
    ],
)
def test_rows_with_one_hash_stay_on_the_nearer_side(units: list[tuple[int, int]], position: int, before: int, limit: int) -> None:
    assert nearest_limit(units, position, before) == limit


def test_values_that_a_split_does_not_have_are_named_the_rarest_first() -> None:
    strata = [Stratum(number, text, np.array([rows])) for number, (text, rows) in enumerate([("common", 90), ("two", 2), ("lone", 1)])]
    counts = apportion([stratum.rows for stratum in strata], SHARES)
    note = describe_missing("c", strata, counts, SHARES)
    assert (
        note.startswith("dataset.split.stratify: 2 of 3 values of c have too few rows to be in every split")
        and "lone (1), two (2);" in note
    )
    assert not describe_missing("c", strata[:1], counts[:1], SHARES), "values of more rows are in every split"
    assert not describe_missing("c", strata[2:], [[1, 0, 0]], [Fraction(1), Fraction(0), Fraction(0)])


def test_too_many_values() -> None:
    for values, rows in ((1_000, 1_000), (501, 1_000), (10_001, 10**9)):
        with pytest.raises(SourceError, match=f"amount has {values:,} values in {rows:,} rows"):
            check_cardinality("amount", values, rows)
    check_cardinality("amount", 500, 1_000)
    check_cardinality("amount", 0, 0)


def split_config(split: dict[str, Any]) -> Any:
    return parse({**VALUES, "dataset": {**VALUES["dataset"], "split": split}}, "x")


@pytest.mark.parametrize("split", [{"by": "published"}, {"time": "day", "validation": "1", "test": "2"}])
def test_a_split_that_a_column_decides_is_not_stratified(split: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"^x: dataset\.split: stratify is c, but the column (published|day) decides the split of each row"
    ):
        split_config({**split, "stratify": "c"})

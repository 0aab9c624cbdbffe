"""Statistics are exact: equal to rational arithmetic, for any order and any partitioning of the rows."""

import json
from decimal import Decimal
from fractions import Fraction
from math import copysign, inf, isqrt, nan

import numpy as np
import pyarrow as pa
import pytest
from fitting import column_statistics
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.features import exact_sums, statistics
from pipelines.data.features import statistics as statistics_module
from pipelines.data.features.base import COUNTS, MOMENTS, SAMPLE
from pipelines.data.features.statistics import Accumulator, Statistics, combine_summaries, statistics_from_summary
from pipelines.errors import ConfigError

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ALL = frozenset({MOMENTS, COUNTS, SAMPLE})


def partition_statistics(values: pa.Array, order: np.ndarray, cuts: list[int], needs: frozenset[str] = ALL) -> Statistics:
    """The rows in one partition for each stretch between cuts, a batch for each half of it, as JSON between processes."""
    summaries, counts = [], []
    for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        accumulator = Accumulator(needs)
        for begin, stop in ((start, (start + end) // 2), ((start + end) // 2, end)):
            accumulator.add(values.slice(begin, stop - begin), order[begin:stop])
            counts.append(accumulator.drain())
        summaries.append(json.loads(json.dumps(accumulator.summary())))
    return statistics_from_summary(combine_summaries(summaries), pa.concat_tables(counts) if COUNTS in needs else None)


def assert_equal(first: Statistics, other: Statistics) -> None:
    for name, value in vars(first).items():
        if isinstance(value, np.ndarray):
            assert value.tolist() == other.__dict__[name].tolist()
        else:
            assert value == other.__dict__[name], name


def true_mean_and_deviation(values: list[float]) -> tuple[float, float]:
    """By rational arithmetic; the root of the variance to 300 bits more than float64 can tell, from a numerator of its own."""
    exactly = [Fraction(value) for value in values]
    mean = sum(exactly) / len(exactly)
    variance = sum((value - mean) ** 2 for value in exactly) / len(exactly)
    bits = 2 * (1100 + 300)
    return float(mean), float(Fraction(isqrt((variance.numerator << 2 * bits) // variance.denominator), 1 << bits))


@given(st.lists(FLOATS, min_size=1, max_size=60))
def test_mean_and_deviation_are_the_true_ones_correctly_rounded(values: list[float]) -> None:
    statistics = column_statistics(pa.array(values, pa.float64()), ALL)
    assert (statistics.mean, statistics.deviation) == true_mean_and_deviation(values)
    assert (statistics.minimum, statistics.maximum) == (min(values), max(values))


@pytest.mark.parametrize(
    "values",
    [
        [1e16, 1.0, -1e16],  # a float64 sum gives 0
        [1e308, 1e308, -1e308],  # and overflows
        [5e-324, 0.0],
        [1e-200, 3e-200],  # whose squares underflow
        [0.1] * 10,
        [2.0**400, 2.0**-400, 1.0],
        [np.nextafter(2.0**400, inf), np.nextafter(2.0**-400, 0), 1.0],
    ],
)
def test_sums_of_extremes(values: list[float]) -> None:
    statistics = column_statistics(pa.array(values), ALL)
    assert (statistics.mean, statistics.deviation) == true_mean_and_deviation(values)


def test_sums_of_many_rows_of_every_magnitude() -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=100_000) * 2.0 ** random.integers(-300, 300, 100_000)
    total, squares = exact_sums.sums(values)
    assert total == sum(map(exact_sums.to_units, values.tolist()))
    assert squares == sum(exact_sums.to_units(value) ** 2 for value in values.tolist())


@given(st.data())
def test_p6_any_order_and_partitioning_give_the_same_statistics(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.one_of(FLOATS, st.sampled_from([None, nan, inf, -inf, 0.0, -0.0, 1.5])), max_size=40))
    order = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(values), max_size=len(values))), np.uint64)
    shuffled = data.draw(st.permutations(range(len(values))))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    rows = pa.array(values, pa.float64())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics_module, "SAMPLE_ROWS", 5)
        patch.setattr(statistics, "_PENDING_COUNTS", 3)
        unpartitioned = partition_statistics(rows, order, [])
        cut = partition_statistics(rows.take(pa.array(shuffled, pa.int64())), order[shuffled], cuts)
    assert_equal(unpartitioned, cut)


def test_sample_is_the_rows_of_smallest_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_module, "SAMPLE_ROWS", 3)
    order = np.array([9, 2, 2**64 - 1, 4, 0, 7], np.uint64)
    statistics = partition_statistics(pa.array([9.0, 2.0, 1.0, None, 0.5, 7.0]), order, [2])
    assert statistics.sample is not None
    assert statistics.sample.tolist() == [0.5, 2.0, 7.0]


def test_missing_and_infinite_values_count_for_nothing_else() -> None:
    statistics = column_statistics(pa.array([None, nan, inf, -inf, 3.0, 5.0]), ALL)
    assert (statistics.rows, statistics.nulls, statistics.infinite, statistics.values) == (6, 2, 2, 2)
    assert (statistics.mean, statistics.deviation, statistics.minimum, statistics.maximum) == (4.0, 1.0, 3.0, 5.0)
    assert statistics.sample is not None
    assert statistics.sample.tolist() == [3.0, 5.0]


def test_minus_zero_is_zero() -> None:
    statistics = column_statistics(pa.array([-0.0, -0.0]), ALL)
    assert statistics.sample is not None
    assert [copysign(1, value) for value in (statistics.minimum, statistics.maximum, *statistics.sample)] == [1, 1, 1, 1]


@pytest.mark.parametrize("values", [[], [None, None], [nan]])
def test_a_column_without_a_number_has_no_moments(values: list[float | None]) -> None:
    statistics = column_statistics(pa.array(values, pa.float64()), ALL)
    assert (statistics.mean, statistics.deviation, statistics.minimum, statistics.maximum, statistics.values) == (None, None, None, None, 0)


@pytest.mark.parametrize("needs", [frozenset(), {COUNTS}, {MOMENTS}])
def test_nulls_count_whatever_is_needed(needs: frozenset[str]) -> None:
    assert column_statistics(pa.array([None, nan, 3.0]), frozenset(needs)).nulls == 2


@pytest.mark.parametrize(
    ("values", "kind", "mean"),
    [
        ([2**53 + 1, 2**53 + 1], pa.int64(), 2.0**53),
        ([True, False, None, True, True], pa.bool_(), 0.75),
        ([Decimal("0.10"), Decimal("0.30")], pa.decimal128(10, 2), 0.2),
        ([0.1], pa.float32(), float(np.float32(0.1))),
        ([-1, 2], pa.int8(), 0.5),
    ],
)
def test_numbers_are_what_float64_makes_of_them(values: list, kind: pa.DataType, mean: float) -> None:
    assert column_statistics(pa.array(values, kind), frozenset({MOMENTS})).mean == mean


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        (pa.array(["b", "a", None, "b", ""]), {"b": 2, "": 1, "a": 1}),
        (pa.array([10, 9, 10], pa.int32()), {"10": 2, "9": 1}),
        (pa.array([True, None, False, True]), {"true": 2, "false": 1}),
        (pa.array([1.5, nan, None, 0.0, -0.0]), {"0": 2, "1.5": 1}),
        (pa.array([19_000], pa.date32()), {"2022-01-08": 1}),
    ],
)
def test_counts_are_of_values_as_text_most_frequent_first(values: pa.Array, counts: dict[str, int]) -> None:
    table = column_statistics(values, frozenset({COUNTS})).counts
    assert table is not None
    assert list(zip(table["value"].to_pylist(), table["count"].to_pylist(), strict=True)) == list(counts.items())


def test_text_has_no_moments_and_arrays_no_counts() -> None:
    with pytest.raises(ConfigError, match="string values are not numbers; CAST them in the query"):
        column_statistics(pa.array(["1"]), frozenset({MOMENTS}))
    with pytest.raises(ConfigError, match="values are not categories; CAST them to STRING"):
        column_statistics(pa.array([[1]]), frozenset({COUNTS}))

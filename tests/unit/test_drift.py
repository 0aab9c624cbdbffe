"""Whether a column has drifted: what is named, and that chance alone is named as seldom as is said."""

import numpy as np
import pytest

from pipelines.diff.drift import ColumnSample, Limits, compare_samples, name_drifts, quantile_edges

CHANCE_ALONE = Limits(psi=0.0, missing=0.0)
"""Limits that any difference is above, so that only chance decides."""


def numbers(values: np.ndarray) -> ColumnSample:
    present = values[np.isfinite(values)]
    return ColumnSample(len(values), len(values) - len(present), numbers=present)


def categories(values: np.ndarray, unnamed: int = 0) -> ColumnSample:
    names, counts = np.unique(values, return_counts=True)
    return ColumnSample(len(values) + unnamed, 0, categories=dict(zip(names.tolist(), counts.tolist(), strict=True)), unnamed=unnamed)


def draw_table(random: np.random.Generator, rows: int) -> dict[str, ColumnSample]:
    """Twenty columns as tables have them: continuous, heavy-tailed, whole, mostly zero, constant, with missing values, and categories."""
    columns = {f"normal {number}": numbers(random.normal(size=rows)) for number in range(6)}
    columns |= {f"heavy {number}": numbers(random.standard_t(1, size=rows)) for number in range(2)}
    columns |= {f"whole {number}": numbers(random.poisson(2.0, rows).astype(float)) for number in range(2)}
    columns["mostly zero"] = numbers(np.where(random.random(rows) < 0.8, 0.0, random.exponential(size=rows)))
    columns["constant"] = numbers(np.full(rows, 3.25))
    for share in (0.001, 0.1, 0.6):
        columns[f"missing {share}"] = numbers(np.where(random.random(rows) < share, np.nan, random.normal(size=rows)))
    columns["few"] = categories(random.choice(["a", "b", "c"], rows, p=[0.7, 0.299, 0.001]))
    columns["many"] = categories(random.zipf(1.5, rows).astype(str))
    columns["all different"] = categories(random.integers(0, 10**12, rows).astype(str))
    columns["flag"] = categories(random.choice(["no", "yes"], rows, p=[0.99, 0.01]))
    columns["unnamed"] = categories(random.choice(["a", "b"], rows), int(random.binomial(rows, 0.02)))
    return columns


@pytest.mark.parametrize(("before", "now"), [(1_500, 1_500), (1_500, 200)])
def test_equal_distributions_are_named_at_most_as_often_as_stated(before: int, now: int) -> None:
    """Even with limits of 0. One of 100 draws may be named by chance; four or more are in one of 50 such tests."""
    random = np.random.default_rng(before + now)
    named = []
    for _ in range(100):
        first, second = draw_table(random, before), draw_table(random, now)
        findings = name_drifts({name: compare_samples(first[name], second[name]) for name in first}, CHANCE_ALONE)
        named += [findings] if findings else []
    assert len(named) <= 3, named


def test_the_chance_of_a_comparison_is_what_it_says() -> None:
    """Neither more nor far less often: of 2,000 columns 5 % are beyond a level of 5 %."""
    random = np.random.default_rng(5)
    chances = [compare_samples(*(numbers(random.normal(size=rows)) for rows in (2_000, 1_000))).chances["drift"] for _ in range(2_000)]
    assert 0.035 < np.mean(np.array(chances) < 0.05) < 0.065


def test_exactly_the_planted_changes_are_named() -> None:
    random = np.random.default_rng(1)
    first, second = draw_table(random, 20_000), draw_table(random, 20_000)
    second["normal 3"] = numbers(random.normal(0.5, 1.0, 20_000))
    second["missing 0.1"] = numbers(np.where(random.random(20_000) < 0.15, np.nan, random.normal(size=20_000)))
    rare = random.choice(["a", "b", "c", "d"], 20_000, p=[0.7, 0.297, 0.001, 0.002])
    second["few"] = categories(rare)
    findings = name_drifts({name: compare_samples(first[name], second[name]) for name in first})
    assert {(finding.column, finding.kind) for finding in findings} == {("normal 3", "drift"), ("missing 0.1", "missing"), ("few", "new")}
    texts = {finding.column: finding.text for finding in findings}
    assert texts["few"] == f"new: d in {(rare == 'd').sum():,} rows"
    assert texts["missing 0.1"].startswith("missing 10.") and " → 1" in texts["missing 0.1"]
    assert texts["normal 3"].startswith("another distribution: PSI 0.2") and "chance gives 0.0009 ± 0.0004" in texts["normal 3"]


def test_the_index_is_that_of_the_textbook() -> None:
    """Over deciles: half of the rows of the first decile move to the last one."""
    before = np.arange(10_000.0)
    now = np.where(before < 500, 9_999.0, before)
    index = compare_samples(numbers(before), numbers(now)).psi
    assert index == pytest.approx(0.05 * np.log(0.1 / 0.05) + 0.05 * np.log(0.15 / 0.1), rel=1e-2)


def test_small_samples_have_a_large_index_by_chance_which_is_not_named() -> None:
    random = np.random.default_rng(2)
    drift = compare_samples(numbers(random.normal(size=60)), numbers(random.normal(size=60)))
    assert drift.psi is not None and drift.psi > 0.1 and drift.expected_psi == pytest.approx(9 * 2 / 60)
    assert name_drifts({"x": drift}) == []


def test_a_tiny_difference_in_many_rows_is_beyond_chance_but_within_the_limit() -> None:
    random = np.random.default_rng(3)
    drift = compare_samples(numbers(random.normal(size=500_000)), numbers(random.normal(0.02, 1.0, 500_000)))
    assert drift.chances["drift"] < 1e-9 and name_drifts({"x": drift}) == []
    assert [finding.kind for finding in name_drifts({"x": drift}, CHANCE_ALONE)] == ["drift"]


def test_values_that_were_read_with_other_rounding_errors_fall_into_the_same_bins() -> None:
    random = np.random.default_rng(4)
    values = random.integers(18, 90, 50_000).astype(float)
    edges = quantile_edges(values, 10)
    decoded = (((values - 41.3) / 17.7).astype(np.float32).astype(float)) * 17.7 + 41.3
    assert (np.searchsorted(edges, values) == np.searchsorted(edges, decoded)).all() and not (decoded == values).all()
    assert len(edges) == 9 and not np.isin(edges, values).any()


def test_a_column_that_was_constant_and_varies_now_has_drifted() -> None:
    constant, varying = np.full(1_000, 7.0), np.where(np.arange(1_000) < 300, 8.0, 7.0)
    assert [finding.kind for finding in name_drifts({"x": compare_samples(numbers(constant), numbers(varying))})] == ["drift"]
    assert name_drifts({"x": compare_samples(numbers(constant), numbers(constant + 1e-7))}) == []


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_too_few_rows_name_nothing(rows: int) -> None:
    few, many = np.arange(float(rows)), np.arange(1_000.0)
    drifts = {"numbers": compare_samples(numbers(many), numbers(few)), "turned": compare_samples(numbers(few), numbers(many))}
    drifts["texts"] = compare_samples(categories(many.astype(str)), categories(few.astype(str)))
    assert name_drifts(drifts) == [] and drifts["numbers"].psi is None


def test_a_category_may_have_been_among_the_unnamed_ones_before() -> None:
    """A vocabulary left out what was rare: a later one that names it does not make it new."""
    before = categories(np.repeat(["a", "b"], [900, 80]), unnamed=20)
    now = categories(np.repeat(["a", "b", "rare"], [900, 80, 20]))
    assert name_drifts({"x": compare_samples(before, now)}) == []
    now = categories(np.repeat(["a", "b", "rare"], [900, 80, 120]))
    assert [finding.kind for finding in name_drifts({"x": compare_samples(before, now)})] == ["new", "drift"]


def test_a_missing_value_where_there_was_none_is_named_below_the_limit() -> None:
    before, now = ColumnSample(200_000, 0), ColumnSample(200_000, 150)
    assert [finding.text for finding in name_drifts({"x": compare_samples(before, now)})] == ["missing 0.00% → 0.07%"]
    assert name_drifts({"x": compare_samples(ColumnSample(200_000, 1_000), ColumnSample(200_000, 2_000))}) == []

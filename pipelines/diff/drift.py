"""Whether a column of numbers or categories has another distribution than before, and whether chance explains that.

The population stability index (PSI), Σ (p − q) ln(p / q), says how large a difference is: over ten bins at quantiles of the numbers before,
or over the most frequent categories before and all others. By convention 0.1 is noteworthy, and 0.25 large. Of equal distributions the
index times n, where n = n_before n_now / (n_before + n_now), is about χ² with one degree less than there are bins (Yurdakul and Naranjo,
"Statistical properties of the population stability index", 2020). So its mean is (bins − 1) / n, which exceeds 0.1 for small samples.

A column is named only where the difference is above a limit and beyond chance. For the latter, Pearson's χ² test is made on the bins, whose
error is nearer to what it claims than that of the index for few rows, and an exact test on missing values and on new categories. Holm's
procedure ("A simple sequentially rejective multiple test procedure", 1979) corrects over all tests, so that of equal distributions a
comparison of all columns names one with a probability of at most `chance`. Rows that both samples share make that less probable still.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.special import bdtr, bdtrc, chdtrc

BINS = 10
MOST_CATEGORIES = 20
"""Categories before that are bins of their own."""
_LEAST_EXPECTED = 5
"""Rows that a bin must lead to expect in each sample; χ² is inexact below."""
_FOLD = 2.0
"""Times the share before that a value's share must be now, to be called new."""
MOST_NEW_VALUES = 10
Kind = Literal["drift", "missing", "new", "gone", "refused"]


@dataclass(frozen=True)
class Limits:
    psi: float = 0.1
    missing: float = 0.01
    """VersionChanges between the shares of missing values."""
    chance: float = 0.01
    """Probability that any column is named although all distributions are equal."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class ColumnSample:
    """Rows of a column: its numbers or its categories, as far as they can be compared."""

    rows: int
    """With those whose value is missing."""
    missing: int | None = None
    """None if that is not known."""
    numbers: np.ndarray | None = None
    """Finite float64, shape (values,)."""
    categories: Mapping[str, int] | None = None
    """Rows by category, without `unnamed` ones."""
    unnamed: int = 0
    """Rows with a category that has no name here, as outside of a vocabulary."""
    names_of_unnamed: tuple[str, ...] = ()
    """Some of those, where they are known from elsewhere."""

    @property
    def values(self) -> int:
        """Rows with a value."""
        return len(self.numbers) if self.numbers is not None else sum((self.categories or {}).values()) + self.unnamed


@dataclass(frozen=True)
class BinCounts:
    """Rows of both samples by bin."""

    labels: tuple[str, ...]
    before: np.ndarray
    """int64, shape (bins,)."""
    now: np.ndarray

    def index(self) -> float:
        """The PSI, with half a row added to each count, so that it is finite."""
        p, q = ((counts + 0.5) / (counts.sum() + 0.5 * len(counts)) for counts in (self.before, self.now))
        return float(((p - q) * np.log(p / q)).sum())

    def chance(self) -> float:
        """Probability of a χ² as large as that of these counts, if both come from one distribution."""
        total = self.before + self.now
        if len(total) == 1:
            return 1.0
        statistic = 0.0
        for counts in (self.before, self.now):
            expected = total * (counts.sum() / total.sum())
            statistic += float(((counts - expected) ** 2 / expected).sum())
        return float(chdtrc(len(total) - 1, statistic))


@dataclass(frozen=True)
class ColumnDrift:
    """Differences between two samples of a column, with the probabilities that chance alone makes that of equal distributions."""

    before: ColumnSample
    now: ColumnSample
    bins: BinCounts | None = None
    """None if there are too few rows, or the values cannot be compared."""
    psi: float | None = None
    expected_psi: float = 0.0
    """Mean of the index under equal distributions, for samples of these sizes."""
    psi_spread: float = 0.0
    """Its standard deviation."""
    new_categories: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Rows now, and their probability, by category that is new or at least twice as frequent as all unnamed ones before."""
    gone_categories: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Rows before, and their probability, by category that is not there any more."""
    chances: Mapping[Kind, float] = field(default_factory=dict)
    """Before the correction for several columns."""

    @property
    def missing_shares(self) -> tuple[float, float] | None:
        if self.before.missing is None or self.now.missing is None:
            return None
        return self.before.missing / max(self.before.rows, 1), self.now.missing / max(self.now.rows, 1)


@dataclass(frozen=True)
class DriftFinding:
    """A difference of a column that is above its limit and beyond chance."""

    column: str
    kind: Kind
    text: str


def compare_samples(before: ColumnSample, now: ColumnSample) -> ColumnDrift:
    """Compare two samples of one column. Columns without comparable values are compared by what is missing alone."""
    chances: dict[Kind, float] = {}
    if before.missing is not None and now.missing is not None:
        chances["missing"] = _chance_of_shares(before.missing, before.rows, now.missing, now.rows)
    added, dropped = _one_sided_categories(before, now), _one_sided_categories(now, before)
    kinds: tuple[tuple[Kind, Mapping[str, tuple[int, float]]], ...] = (("new", added), ("gone", dropped))
    chances |= {kind: min(chance for _, chance in values.values()) for kind, values in kinds if values}
    bins = _bins(before, now)
    if bins is None:
        return ColumnDrift(before, now, new_categories=added, gone_categories=dropped, chances=chances)
    chances["drift"] = bins.chance()
    degrees, size = len(bins.before) - 1, 1 / bins.before.sum() + 1 / bins.now.sum()
    return ColumnDrift(before, now, bins, bins.index(), degrees * size, (2 * degrees) ** 0.5 * size, added, dropped, chances)


def compare_refusals(before: int, before_rows: int, now: int, now_rows: int) -> ColumnDrift:
    """Compare how many rows were refused for one reason, as if it were a column that is missing in them."""
    chance = _chance_of_shares(before, before_rows, now, now_rows)
    return ColumnDrift(ColumnSample(before_rows, before), ColumnSample(now_rows, now), chances={"refused": chance})


def name_drifts(drifts: Mapping[str, ColumnDrift], limits: Limits = DEFAULT_LIMITS) -> list[DriftFinding]:
    """The columns that differ by more than the limits and beyond chance, the largest index first, with what differs in words."""
    beyond = _holm({(column, kind): chance for column, drift in drifts.items() for kind, chance in drift.chances.items()}, limits.chance)
    texts = {
        (column, kind): _describe(drift, kind, limits)
        for column, drift in sorted(drifts.items(), key=lambda pair: -(pair[1].psi or 0))
        for kind in drift.chances
        if (column, kind) in beyond
    }
    return [DriftFinding(column, kind, text) for (column, kind), text in texts.items() if text]


def _holm(chances: Mapping[tuple[str, Kind], float], level: float) -> set[tuple[str, Kind]]:
    """The tests that are beyond chance, at a level for all of them together."""
    rejected = set()
    for place, (test, chance) in enumerate(sorted(chances.items(), key=lambda pair: pair[1])):
        if chance > level / (len(chances) - place):
            break
        rejected.add(test)
    return rejected


def _describe(drift: ColumnDrift, kind: Kind, limits: Limits) -> str:
    """A difference in words; empty if it is within its limit."""
    match kind:
        case "drift" if drift.psi is not None and drift.psi >= limits.psi:
            text = f"another distribution: PSI {drift.psi:.2f}, where chance gives {drift.expected_psi:.2g} ± {drift.psi_spread:.1g}"
            return text + _moments(drift)
        case "missing" if shares := drift.missing_shares:
            first, second = shares
            if abs(second - first) >= limits.missing or not (first and second):
                return f"missing {first:.2%} → {second:.2%}"
        case "refused" if shares := drift.missing_shares:
            first, second = shares
            if abs(second - first) >= limits.missing or max(shares) >= _FOLD * min(shares):
                return f"refused {first:.2%} → {second:.2%}"
        case "new":
            return f"new: {_list_values(drift.new_categories, drift.now.names_of_unnamed, limits.chance)}"
        case "gone":
            return f"gone: {_list_values(drift.gone_categories, drift.before.names_of_unnamed, limits.chance)}"
    return ""


UNNAMED = "outside of the vocabulary"


def _list_values(values: Mapping[str, tuple[int, float]], names_of_unnamed: tuple[str, ...], level: float) -> str:
    texts = []
    for name, (rows, chance) in sorted(values.items(), key=lambda pair: (pair[1][1], pair[0])):
        if chance <= level:
            names = f" ({', '.join(names_of_unnamed)})" if name == UNNAMED and names_of_unnamed else ""
            texts.append(f"{name or '(empty)'}{names} in {rows:,} row{'s' * (rows != 1)}")
    more = f", and {len(texts) - MOST_NEW_VALUES} more" if len(texts) > MOST_NEW_VALUES else ""
    return ", ".join(texts[:MOST_NEW_VALUES]) + more


def _moments(drift: ColumnDrift) -> str:
    before, now = drift.before.numbers, drift.now.numbers
    if before is not None and now is not None:
        return f"; mean {before.mean():.4g} → {now.mean():.4g}, median {np.median(before):.4g} → {np.median(now):.4g}"
    if drift.bins is None:
        return ""
    shares = drift.bins.before / drift.bins.before.sum(), drift.bins.now / drift.bins.now.sum()
    place = int(np.argmax(abs(shares[1] - shares[0])))
    return f"; the largest change is of {drift.bins.labels[place]}, {shares[0][place]:.1%} → {shares[1][place]:.1%}"


def _bins(before: ColumnSample, now: ColumnSample) -> BinCounts | None:
    """None where a sample has too few values for two bins."""
    smallest = min(before.values, now.values)
    if smallest < 2 * _LEAST_EXPECTED:
        return None
    if before.numbers is not None and now.numbers is not None:
        return _number_bins(before.numbers, now.numbers, min(BINS, smallest // _LEAST_EXPECTED))
    if before.categories is not None and now.categories is not None:
        return _category_bins(before, now)
    return None


def _number_bins(before: np.ndarray, now: np.ndarray, count: int) -> BinCounts:
    edges = quantile_edges(before, count)
    counts = [np.bincount(np.searchsorted(edges, values, side="right"), minlength=len(edges) + 1) for values in (before, now)]
    ends = [f"{edge:.4g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(ends)]
    labels = (f"below {ends[0]}", *between, f"above {ends[-1]}") if ends else ("all",)
    return _merge_constant(before, now) if not ends else BinCounts(labels, *counts)


def _merge_constant(before: np.ndarray, now: np.ndarray) -> BinCounts:
    """Of a column that was constant before: whether a number is that constant, as nearly as float32 tells."""
    is_same = np.isclose(now, before[0], rtol=1e-6, atol=1e-6)
    counts = np.array([is_same.sum(), (~is_same).sum()], np.int64)
    if not counts[1]:
        return BinCounts(("all",), np.array([len(before)]), counts[:1])
    return BinCounts((f"{before[0]:.4g}", "all others"), np.array([len(before), 0]), counts)


def quantile_edges(values: np.ndarray, count: int) -> np.ndarray:
    """Inner edges of at most `count` bins with about equal numbers of these values.

    Each lies in the middle between two different values, so that values which are read with the rounding errors of another encoder's
    state fall into the same bins. Where many are equal, it lies at the nearer end of these."""
    in_order = np.sort(values)
    cuts = set()
    for quantile in range(1, count):
        place = round(len(in_order) * quantile / count)
        value = in_order[min(place, len(in_order) - 1)]
        ends = [int(np.searchsorted(in_order, value, side=side)) for side in ("left", "right")]
        inner = [end for end in ends if 0 < end < len(in_order)]
        if inner:
            cuts.add(min(inner, key=lambda end: abs(end - place)))
    edges = [in_order[cut - 1] / 2 + in_order[cut] / 2 for cut in sorted(cuts)]
    return np.array(edges)


def _category_bins(before: ColumnSample, now: ColumnSample) -> BinCounts | None:
    """The most frequent categories before, and all others; those of which few rows are expected are among the others."""
    first, second = dict(before.categories or {}), dict(now.categories or {})
    smaller_share = min(before.values, now.values) / (before.values + now.values)
    frequent = sorted(first, key=lambda name: (-first[name], name))[:MOST_CATEGORIES]
    names = [name for name in frequent if (first[name] + second.get(name, 0)) * smaller_share >= _LEAST_EXPECTED]
    counts = np.array([[sample.get(name, 0) for name in names] for sample in (first, second)], np.int64)
    other_rows = np.array([before.values, now.values]) - counts.sum(1)
    if not names or (len(names) == 1 and not other_rows.any()):
        return None
    if not other_rows.any():
        return BinCounts(tuple(names), counts[0], counts[1])
    if other_rows.sum() * smaller_share < _LEAST_EXPECTED and len(names) > 1:  # too few to stand alone
        counts[:, -1] += other_rows
        return BinCounts((*names[:-1], f"{names[-1]}, and all others"), counts[0], counts[1])
    counts = np.column_stack([counts, other_rows])
    return BinCounts((*names, "all others"), counts[0], counts[1])


def _one_sided_categories(before: ColumnSample, now: ColumnSample) -> dict[str, tuple[int, float]]:
    """The categories of `now` alone, with their rows and the probability that chance leaves them out of `before`, corrected over all
    categories. They may be among the unnamed ones there, whose number is then taken for theirs, and unnamed ones may have a name there."""
    if before.categories is None or now.categories is None or not before.values:
        return {}
    names = {name: (rows, before.unnamed) for name, rows in now.categories.items() if rows and not before.categories.get(name)}
    if now.unnamed:
        only_before = sum(rows for name, rows in before.categories.items() if not now.categories.get(name))
        names[UNNAMED] = now.unnamed, before.unnamed + only_before
    tests = len({*before.categories, *now.categories}) + 1
    values_before, values_now = before.values, now.values
    share = values_now / (values_before + values_now)
    unmatched = {}
    for name, (rows, rows_before) in names.items():
        if rows / values_now >= _FOLD * rows_before / values_before:
            unmatched[name] = rows, min(1.0, tests * float(bdtrc(rows - 1, rows + rows_before, share)))
    return unmatched


def _chance_of_shares(first: int, first_rows: int, second: int, second_rows: int) -> float:
    """Two-sided probability of shares that differ as much, if they are one: of the rarer of both outcomes, given how often it came in all.
    The binomial distribution bounds the hypergeometric one."""
    if not first_rows or not second_rows:
        return 1.0
    if first + second > (first_rows + second_rows) / 2:
        first, second = first_rows - first, second_rows - second
    total, share = first + second, second_rows / (first_rows + second_rows)
    if not total:
        return 1.0
    upper = 1.0 if second == 0 else float(bdtrc(second - 1, total, share))
    return min(1.0, 2 * min(float(bdtr(second, total, share)), upper))


def drift_values(drift: ColumnDrift) -> dict[str, Any]:
    """The numbers of a comparison, for JSON."""
    values: dict[str, Any] = {"rows": [drift.before.rows, drift.now.rows], "values": [drift.before.values, drift.now.values]}
    if drift.psi is not None and drift.bins is not None:
        values |= {"psi": drift.psi, "psi_expected": drift.expected_psi, "psi_spread": drift.psi_spread}
        values["bins"] = [list(drift.bins.labels), drift.bins.before.tolist(), drift.bins.now.tolist()]
    if shares := drift.missing_shares:
        values["missing"] = list(shares)
    for name, categories in (("new", drift.new_categories), ("gone", drift.gone_categories)):
        if categories:
            most = sorted(categories, key=lambda value: -categories[value][0])[:100]
            values[name] = {value: categories[value][0] for value in most}
    return values | {"chances": dict(drift.chances)}

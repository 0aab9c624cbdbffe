"""Computes where `dataset.split.stratify` cuts each value's rows, so that every split has its share of them.

1. `find_cuts` counts the rows of each stratum, the rows of a value, by ranges of the hash that assigns splits.
2. `apportion` says how many rows of a stratum each split is to have.
3. The hashes of the few ranges in which a cut lies give the cut itself: a row is in train if its hash is below the first cut, in
   validation if below the second.

So a row's split follows from the hashes alone, as without strata, and rows with the same hash go to one split.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import accumulate, islice

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.data.versions.manifest import SPLITS
from pipelines.errors import SourceError
from pipelines.etl.refusals import accepted_rows

STRATUM, FIRST_CUT, SECOND_CUT = "__stratum", "__first_cut", "__second_cut"
"""Columns of the cuts: the hash of a stratum's value, and the hashes from which a row is not in train, and not in validation."""
HASH_BITS = 53
"""Rows are ordered by integers below 2**HASH_BITS."""
MOST_VALUES = 10_000
"""Values of the column, for each of which the driver has up to 256 counts."""
_RANGE_BITS = 8
_NAMED, _NAME_LENGTH = 5, 40
_SHARE, _RANGE, _TEXT = "__share", "__range", "__text"


@dataclass(frozen=True)
class Cuts:
    table: pa.Table
    """STRATUM, FIRST_CUT and SECOND_CUT of each stratum."""
    note: str = ""
    """Values that some split does not have, in one line; empty if each has all."""


@dataclass(frozen=True)
class Stratum:
    number: int
    """Hash of the value, as in STRATUM."""
    text: str
    rows_by_range: np.ndarray
    """int64 of shape (2**_RANGE_BITS,)."""

    @property
    def rows(self) -> int:
        return int(self.rows_by_range.sum())


NO_CUTS = Cuts(pa.schema(dict.fromkeys((STRATUM, FIRST_CUT, SECOND_CUT), pa.int64())).empty_table())
"""Of no stratum: with it `assign_split` is analysed without the job that counts strata."""


def find_cuts(rows: DataFrame, stratum: Column, value: Column, share: Column, shares: Sequence[Fraction], name: str) -> Cuts:
    """The cuts of the rows that are not refused. `stratum` is the hash of the `value` of the column `name`, and `share` the integer that
    orders rows; `shares` are those of the splits, and sum to 1. Raises SourceError if the column has too many values."""
    strata, counts, limits = find_limits(rows, stratum, value, share, partial(apportion, shares=shares), name)
    columns = [[stratum.number for stratum in strata], *map(list, zip(*limits, strict=True))] if strata else [[], [], []]
    table = pa.table([pa.array(column, pa.int64()) for column in columns], names=[STRATUM, FIRST_CUT, SECOND_CUT])
    return Cuts(table, describe_missing(name, strata, counts, shares))


def find_limits(
    rows: DataFrame, stratum: Column, value: Column, share: Column, divide: Callable[[Sequence[int]], list[list[int]]], name: str
) -> tuple[list["Stratum"], list[list[int]], list[list[int]]]:
    """The strata of `find_cuts`, how `divide` divides the rows of each, and the hashes from which its rows are in the next division. Raises
    SourceError if the column has too many values."""
    text = F.substring(value.cast("string"), 1, _NAME_LENGTH)
    hashed_range = F.shiftrightunsigned(share, HASH_BITS - _RANGE_BITS).cast("int")
    # Two jobs read it, and the rows themselves may be wide, or expensive to compute.
    hashes = (
        accepted_rows(rows).select(stratum.alias(STRATUM), share.alias(_SHARE), hashed_range.alias(_RANGE), text.alias(_TEXT)).persist()
    )
    try:
        strata = _count_strata(hashes, name)
        counts = divide([stratum.rows for stratum in strata])
        positions = [(stratum, cut) for stratum, divided in zip(strata, counts, strict=True) for cut in accumulate(divided[:-1])]
        limits = iter(_limits(hashes, positions))
    finally:
        hashes.unpersist()
    return strata, counts, [list(islice(limits, len(divided) - 1)) for divided in counts]


def apportion(rows: Sequence[int], shares: Sequence[Fraction], fills_first: bool = True) -> list[list[int]]:
    """How many of each stratum's rows each split gets: its share, rounded up or down, so that the splits' sums over all strata so far are
    as near to their shares as that allows. With `fills_first`, every stratum has a row in the first split."""
    counts_by_stratum, owed = [], [Fraction(0)] * len(shares)
    for total in rows:
        quotas = [share * total for share in shares]
        counts = [int(quota) for quota in quotas]
        rounded = [split for split, quota in enumerate(quotas) if quota > counts[split]]
        by_need = sorted(
            rounded, key=lambda split: (bool(not fills_first or split or counts[0]), counts[split] - quotas[split] - owed[split], split)
        )
        for split in by_need[: total - sum(counts)]:
            counts[split] += 1
        owed = [due + quota - count for due, quota, count in zip(owed, quotas, counts, strict=True)]
        counts_by_stratum.append(counts)
    return counts_by_stratum


def nearest_limit(units: Sequence[tuple[int, int]], position: int, before: int = 0) -> int:
    """The hash from which units are behind the cut that is to have `position` rows of the stratum before it. `units` are pairs of hash and
    rows, in order, after `before` rows. Rows with one hash stay together, where that brings the cut nearer; no cut but that at position 0
    has nothing before it."""
    for share, rows in units:
        if before + rows > position:
            is_behind = position == before or (before > 0 and position - before < before + rows - position)
            return share if is_behind else share + 1
        before += rows
    raise AssertionError("the position is within the units")


def check_cardinality(name: str, values: int, rows: int) -> None:
    """Raises SourceError if the column `name` has too many values to be stratified by."""
    if 2 * values > rows > 0 or values > MOST_VALUES:
        raise SourceError(
            f"dataset.split.stratify: {name} has {values:,} values in {rows:,} rows, and may have {MOST_VALUES:,}, with two rows each on "
            f"average; name a column of fewer values, such as ranges that source.query makes by width_bucket({name}, 0, 100, 10), or leave "
            "stratify out"
        )


def describe_missing(name: str, strata: Sequence[Stratum], counts: Sequence[Sequence[int]], shares: Sequence[Fraction]) -> str:
    """A line about the values that some split does not have; empty if there are none."""
    missing = [
        stratum
        for stratum, split_counts in zip(strata, counts, strict=True)
        if any(share and not count for share, count in zip(shares, split_counts, strict=True))
    ]
    if not missing:
        return ""
    fewest = sorted(missing, key=lambda stratum: (stratum.rows, stratum.text, stratum.number))[:_NAMED]
    named = ", ".join(f"{stratum.text} ({stratum.rows:,})" for stratum in fewest) + (", …" if len(missing) > _NAMED else "")
    return (
        f"dataset.split.stratify: {len(missing):,} of {len(strata):,} values of {name} have too few rows to be in every split, and are in "
        f"{SPLITS[0]} at least: {named}; give more rows of them, or make one value of several in source.query"
    )


def _count_strata(hashes: DataFrame, name: str) -> list[Stratum]:
    """The strata, in the order of their hashes. Raises the SourceError of `check_cardinality`."""
    # Spark would sort the rows for a minimum of texts. -0.0 and 0.0 are one value with two texts.
    counted = hashes.groupBy(STRATUM, _RANGE, _TEXT).agg(F.count("*").alias("rows"))
    table = counted.limit((MOST_VALUES << _RANGE_BITS) + 1).toArrow()
    if len(table) > MOST_VALUES << _RANGE_BITS:
        check_cardinality(name, hashes.select(STRATUM).distinct().count(), hashes.count())
        table = counted.toArrow()
    numbers, places = np.unique(table[STRATUM].to_numpy(), return_inverse=True)
    rows = np.zeros((len(numbers), 1 << _RANGE_BITS), np.int64)
    np.add.at(rows, (places, table[_RANGE].to_numpy()), table["rows"].to_numpy())
    check_cardinality(name, len(numbers), int(rows.sum()))
    texts = dict(sorted(zip(table[STRATUM].to_pylist(), table[_TEXT].to_pylist(), strict=True), key=str))
    printable = {
        number: "NULL" if text is None else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
        for number, text in texts.items()
    }
    return [Stratum(number, printable[number], rows_by_range) for number, rows_by_range in zip(numbers.tolist(), rows, strict=True)]


def _limits(hashes: DataFrame, positions: Sequence[tuple[Stratum, int]]) -> list[int]:
    """The hash at each position of a stratum; above all hashes for its end."""
    ranges, rows_before = [], []
    for stratum, position in positions:
        ends = np.cumsum(stratum.rows_by_range)
        hashed_range = int(np.searchsorted(ends, position, side="right"))
        ranges.append((stratum.number, hashed_range))
        rows_before.append(int(ends[hashed_range - 1]) if hashed_range else 0)
    # Pairs of hash and rows, in order, of the ranges in which a position lies.
    keys = sorted({key for key, (stratum, position) in zip(ranges, positions, strict=True) if position < stratum.rows})
    numbers, hashed_ranges = (pa.array([key[place] for key in keys], kind) for place, kind in enumerate((pa.int64(), pa.int32())))
    keys_of_ranges = hashes.sparkSession.createDataFrame(pa.table({STRATUM: numbers, _RANGE: hashed_ranges}))
    matching = hashes.join(F.broadcast(keys_of_ranges), [STRATUM, _RANGE], "left_semi")
    table = matching.groupBy(STRATUM, _RANGE, _SHARE).agg(F.count("*").alias("rows")).toArrow().sort_by(_SHARE)
    units: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, hashed_range, share, rows in zip(*(table[name].to_pylist() for name in (STRATUM, _RANGE, _SHARE, "rows")), strict=True):
        units.setdefault((number, hashed_range), []).append((share, rows))
    return [
        nearest_limit(units[key], position, before) if key in units else 1 << HASH_BITS
        for key, before, (_, position) in zip(ranges, rows_before, positions, strict=True)
    ]

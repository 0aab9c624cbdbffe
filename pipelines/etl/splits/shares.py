"""Compares the shares that `dataset.split` asks for with the actual ones, and says why they differ.

Rows go to a split by a hash of a unit: of their key, their group, or all their columns. Equal units go to one split together, so that a row
which is repeated thousands of times, or a huge group, moves a whole split.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.dataset.dataset import ByColumn, ByFraction, ByTime, Dataset
from pipelines.data.versions.manifest import SPLITS, Shares
from pipelines.errors import SourceError
from pipelines.etl.refusals import accepted_rows
from pipelines.etl.splits.split_assignment import SPLIT, TRAIN, VALIDATION, exact_column, split_hash

SAID, SAID_OF_ASKED = 0.03, 0.5
"""A difference from which it is said: of the rows, or of the share that was asked for where chance does not explain it."""
CHANCE_ERRORS = 4.0
"""Standard errors of a share that chance explains."""
HALF_OF_TIME, HARDLY = 0.5, 0.01
"""Shares of a split by time above and below which it is said: there, nothing is asked for."""
_VALUE_LENGTH = 60


@dataclass(frozen=True)
class SplitUnit:
    """Rows that go to one split together: how many such units there are, and the largest of them."""

    name: str
    """Plural, as in `groups`."""
    count: int
    rows: int
    """Rows of the largest unit."""
    split: str
    """Split of the largest unit."""
    largest: str
    """Description of the largest unit, as in `one row repeats 3,322 times`."""
    remedy: str


def compare_shares(judged: DataFrame, rows: Mapping[int, int], dataset: Dataset, note: str = "") -> Shares:
    """The shares of the rows that are not refused. `rows` are their numbers by split's index. Spark looks for the cause of a difference
    only if there is one. `note` is what else is to be said of the strata. Raises SourceError if the shares differ by more than
    `dataset.max_share_error` beyond chance."""
    split = dataset.split
    if isinstance(split, ByTime):
        return _describe_time_shares(judged, rows, split)
    requested = target_shares(dataset)
    if isinstance(split, ByColumn) and requested:
        judged = judged.where(exact_column(split.by).cast("string") == SPLITS[TRAIN])
        rows = {number: count for number, count in rows.items() if number in (TRAIN, VALIDATION)}
        if is_notable(requested, row_shares(rows)):  # the publisher may have a validation split beside the rows that are moved
            counted = {row[SPLIT]: row["count"] for row in accepted_rows(judged).groupBy(SPLIT).count().collect()}
            rows = {number: counted.get(number, 0) for number in rows}
    actual = row_shares(rows)
    if not requested or not is_notable(requested, actual, sum(rows.values())):
        return Shares(asked=requested, came=actual, said=note)
    described = describe_difference(requested, actual, sum(rows.values()), _split_unit(judged, dataset))
    return check_shares(described.model_copy(update={"said": f"{note}; {described.said}"}) if note else described, dataset)


def target_shares(dataset: Dataset) -> dict[str, float]:
    """The share that is asked for of each split; empty if the config asks for none. By column, they are of the rows marked `train`."""
    split = dataset.split
    if isinstance(split, ByFraction):
        total = split.train + split.validation + split.test
        return {name: getattr(split, name) / total for name in SPLITS}
    if isinstance(split, ByColumn) and split.validation:
        return {SPLITS[TRAIN]: 1 - split.validation, SPLITS[VALIDATION]: split.validation}
    return {}


def row_shares(rows: Mapping[int, int]) -> dict[str, float]:
    total = max(sum(rows.values()), 1)
    return {SPLITS[number]: count / total for number, count in sorted(rows.items())}


def is_notable(requested: Mapping[str, float], actual: Mapping[str, float], rows: int = 0) -> bool:
    def is_large(share: float, difference: float) -> bool:
        return difference > min(SAID, max(SAID_OF_ASKED * share, _chance_error(share, rows)))

    return any(is_large(share, abs(actual.get(split, 0.0) - share)) for split, share in requested.items())


def describe_difference(requested: Mapping[str, float], actual: Mapping[str, float], rows: int, unit: SplitUnit) -> Shares:
    """The shares, with a sentence on how they differ, why, and what helps."""
    differences = {split: actual.get(split, 0.0) - share for split, share in requested.items()}
    beyond_chance = max(abs(difference) - _chance_error(requested[split], unit.count) for split, difference in differences.items())
    worst = max(map(abs, differences.values()))
    by_size = sorted(requested, key=lambda split: (-differences[split], SPLITS.index(split)))
    shares_text = ", ".join(f"{split} has {percent(actual.get(split, 0.0))}, asked {percent(requested[split])}" for split in by_size)
    if unit.rows > 1 and unit.rows >= worst / 2 * rows:
        why, remedy = unit.largest, unit.remedy
    elif beyond_chance <= 0:
        why = f"chance, with only {unit.count:,} {unit.name}"
        remedy = "give more of them, or the split of each row in a column, as dataset.split: {by: column}"
    else:
        why, remedy = f"the {unit.count:,} {unit.name} have unequal numbers of rows, and of the largest, {unit.largest}", unit.remedy
    return Shares(asked=dict(requested), came=dict(actual), beyond_chance=max(beyond_chance, 0.0), said=f"{shares_text}: {why}; {remedy}")


def check_shares(shares: Shares, dataset: Dataset) -> Shares:
    """Raises SourceError if they differ by more than the config allows."""
    if shares.beyond_chance > dataset.max_share_error:
        raise SourceError(
            f"{shares.said}; or raise dataset.max_share_error: the difference is {percent(shares.beyond_chance)} beyond chance, and "
            f"{percent(dataset.max_share_error)} are allowed"
        )
    return shares


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def _chance_error(share: float, units: int) -> float:
    """How far the share of so many units that are dealt by a hash may lie from what was asked for."""
    return CHANCE_ERRORS * (share * (1 - share) / units) ** 0.5 if units else 1.0


def _split_unit(judged: DataFrame, dataset: Dataset) -> SplitUnit:
    split = dataset.split
    group = split.group if isinstance(split, ByFraction) else ""
    value = F.first(exact_column(group)).cast("string") if group else F.lit("")
    count, rows, number, text = _largest_unit(judged, split_hash(judged, split), value)
    if group:
        value_text = "NULL" if text is None else text[:_VALUE_LENGTH]
        remedy = "a group goes to one split as a whole: leave dataset.split.group out, or name a column of smaller groups"
        return SplitUnit("groups", count, rows, SPLITS[number], f"the group {group} = {value_text} has {rows:,} rows", remedy)
    if dataset.key:
        return SplitUnit("rows", count, rows, SPLITS[number], f"one key has {rows:,} rows", "give more rows")
    remedy = (
        "equal rows go to one split together: keep one of each by SELECT DISTINCT in source.query, or let the query give a column that "
        "tells them apart, as dataset.key"
    )
    return SplitUnit("different rows", count, rows, SPLITS[number], f"one row repeats {rows:,} times", remedy)


def _largest_unit(judged: DataFrame, unit: Column, value: Column) -> tuple[int, int, int, str | None]:
    """The number of units, and the rows, split's index and value of the largest one."""
    units = (
        accepted_rows(judged).groupBy(unit.alias("unit")).agg(F.count("*").alias("rows"), F.min(SPLIT).alias("split"), value.alias("value"))
    )
    largest = units.agg(F.count("*"), F.max(F.struct("rows", "split", "unit", "value"))).head()
    assert largest is not None and largest[1] is not None, "some split has rows"
    return largest[0], largest[1]["rows"], largest[1]["split"], largest[1]["value"]


def _describe_time_shares(judged: DataFrame, rows: Mapping[int, int], split: ByTime) -> Shares:
    """Nothing is asked for: only a split with most of the rows, or hardly any, is named, with the time that most rows have."""
    actual = row_shares(rows)
    odd = {name: actual[name] for name in SPLITS[VALIDATION:] if actual[name] > HALF_OF_TIME or actual[name] < HARDLY}
    if not odd:
        return Shares(came=actual)
    _, most, number, text = _largest_unit(judged, exact_column(split.time), F.first(exact_column(split.time)).cast("string"))
    shares_text = ", ".join(f"{name} has {percent(share)} of the rows" for name, share in odd.items())
    why = f"{most:,} rows, all in {SPLITS[number]}, have {split.time} = {text}" if most > 1 else f"no two rows have the same {split.time}"
    return Shares(came=actual, said=f"{shares_text}: {why}; choose other bounds, dataset.split.validation and dataset.split.test")


def compare_window_shares(rows: Mapping[str, int], documents: int, dataset: Dataset) -> Shares:
    """The shares of windows that documents were packed into, which the model sees. Raises SourceError as `compare_shares` does."""
    requested, total = target_shares(dataset), max(sum(rows.values()), 1)
    actual = {split: count / total for split, count in rows.items()}
    if not isinstance(dataset.split, ByFraction) or not is_notable(requested, actual, total):
        return Shares(asked=requested, came=actual)
    remedy = "a document goes to one split as a whole: give more documents, or cut long ones in source.query"
    unit = SplitUnit("documents", documents, total, "", "documents differ in length", remedy)
    return check_shares(describe_difference(requested, actual, total, unit), dataset)

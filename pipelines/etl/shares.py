"""Compares the shares that `dataset.split` asks for with those that came, and says why they differ.

Rows are dealt by a hash of a unit: of their key, their group, or all their columns. Equal units go to one split together, so that a row
which is repeated thousands of times, or a huge group, moves a whole split.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.dataset import ByColumn, ByFraction, ByTime, Dataset
from pipelines.data.versions.manifest import SPLITS, Shares
from pipelines.errors import SourceError
from pipelines.etl.placement import SPLIT, TRAIN, VALIDATION, dealt_by, named
from pipelines.etl.quality import accepted

SAID, SAID_OF_ASKED = 0.03, 0.5
"""A difference from which it is said: of the rows, or of the share that was asked for where chance does not explain it."""
CHANCE_ERRORS = 4.0
"""Standard errors of a share that chance explains."""
HALF_OF_TIME, HARDLY = 0.5, 0.01
"""Shares of a split by time above and below which it is said: there, nothing is asked for."""
_VALUE_LENGTH = 60


@dataclass(frozen=True)
class Unit:
    """What is dealt together, and the largest of them."""

    name: str
    """Of several, as in `groups`."""
    count: int
    rows: int
    """Of the largest one."""
    split: str
    """Where the largest one went."""
    largest: str
    """What it is, as in `one row repeats 3,322 times`."""
    remedy: str


def compared(judged: DataFrame, rows: Mapping[int, int], dataset: Dataset) -> Shares:
    """The shares of the rows that are not refused. `rows` are their numbers by split's index. Spark looks for the cause of a difference
    only if there is one. Raises SourceError if they differ by more than `dataset.max_share_error` beyond chance."""
    split = dataset.split
    if isinstance(split, ByTime):
        return _by_time(judged, rows, split)
    asked = asked_of(dataset)
    if isinstance(split, ByColumn) and asked:
        judged = judged.where(named(split.by).cast("string") == SPLITS[TRAIN])
        rows = {number: count for number, count in rows.items() if number in (TRAIN, VALIDATION)}
        if is_off(asked, shares_of(rows)):  # the publisher may have a validation split beside the rows that are moved
            counted = {row[SPLIT]: row["count"] for row in accepted(judged).groupBy(SPLIT).count().collect()}
            rows = {number: counted.get(number, 0) for number in rows}
    came = shares_of(rows)
    if not asked or not is_off(asked, came, sum(rows.values())):
        return Shares(asked=asked, came=came)
    return checked(described(asked, came, sum(rows.values()), _unit(judged, dataset)), dataset)


def asked_of(dataset: Dataset) -> dict[str, float]:
    """The share that is asked for of each split; empty if the config asks for none. By column, they are of the rows marked `train`."""
    split = dataset.split
    if isinstance(split, ByFraction):
        total = split.train + split.validation + split.test
        return {name: getattr(split, name) / total for name in SPLITS}
    if isinstance(split, ByColumn) and split.validation:
        return {SPLITS[TRAIN]: 1 - split.validation, SPLITS[VALIDATION]: split.validation}
    return {}


def shares_of(rows: Mapping[int, int]) -> dict[str, float]:
    total = max(sum(rows.values()), 1)
    return {SPLITS[number]: count / total for number, count in sorted(rows.items())}


def is_off(asked: Mapping[str, float], came: Mapping[str, float], rows: int = 0) -> bool:
    """Whether a difference is worth a word."""

    def is_word(share: float, difference: float) -> bool:
        return difference > min(SAID, max(SAID_OF_ASKED * share, _by_chance(share, rows)))

    return any(is_word(share, abs(came.get(split, 0.0) - share)) for split, share in asked.items())


def described(asked: Mapping[str, float], came: Mapping[str, float], rows: int, unit: Unit) -> Shares:
    """What differs, why, and what helps."""
    differences = {split: came.get(split, 0.0) - share for split, share in asked.items()}
    beyond = max(abs(difference) - _by_chance(asked[split], unit.count) for split, difference in differences.items())
    worst = max(map(abs, differences.values()))
    by_size = sorted(asked, key=lambda split: (-differences[split], SPLITS.index(split)))
    what = ", ".join(f"{split} has {percent(came.get(split, 0.0))}, asked {percent(asked[split])}" for split in by_size)
    if unit.rows > 1 and unit.rows >= worst / 2 * rows:
        why, remedy = unit.largest, unit.remedy
    elif beyond <= 0:
        why = f"chance, with only {unit.count:,} {unit.name}"
        remedy = "give more of them, or the split of each row in a column, as dataset.split: {by: column}"
    else:
        why, remedy = f"the {unit.count:,} {unit.name} have unequal numbers of rows, and of the largest, {unit.largest}", unit.remedy
    return Shares(asked=dict(asked), came=dict(came), beyond_chance=max(beyond, 0.0), said=f"{what}: {why}; {remedy}")


def checked(shares: Shares, dataset: Dataset) -> Shares:
    """Raises SourceError if they differ by more than the config allows."""
    if shares.beyond_chance > dataset.max_share_error:
        raise SourceError(
            f"{shares.said}; or raise dataset.max_share_error: the difference is {percent(shares.beyond_chance)} beyond chance, and "
            f"{percent(dataset.max_share_error)} are allowed"
        )
    return shares


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 or not share else f"{100 * share:.2g} %"


def _by_chance(share: float, units: int) -> float:
    """How far the share of so many units that are dealt by a hash may lie from what was asked for."""
    return CHANCE_ERRORS * (share * (1 - share) / units) ** 0.5 if units else 1.0


def _unit(judged: DataFrame, dataset: Dataset) -> Unit:
    split = dataset.split
    group = split.group if isinstance(split, ByFraction) else ""
    value = F.first(named(group)).cast("string") if group else F.lit("")
    count, rows, number, text = _largest(judged, dealt_by(judged, split), value)
    if group:
        shown = "NULL" if text is None else text[:_VALUE_LENGTH]
        remedy = "a group goes to one split as a whole: leave dataset.split.group out, or name a column of smaller groups"
        return Unit("groups", count, rows, SPLITS[number], f"the group {group} = {shown} has {rows:,} rows", remedy)
    if dataset.key:
        return Unit("rows", count, rows, SPLITS[number], f"one key has {rows:,} rows", "give more rows")
    remedy = (
        "equal rows go to one split together: keep one of each by SELECT DISTINCT in source.query, or let the query give a column that "
        "tells them apart, as dataset.key"
    )
    return Unit("different rows", count, rows, SPLITS[number], f"one row repeats {rows:,} times", remedy)


def _largest(judged: DataFrame, unit: Column, value: Column) -> tuple[int, int, int, str | None]:
    """The number of units, and the rows, split's index and value of the largest one."""
    each = accepted(judged).groupBy(unit.alias("unit")).agg(F.count("*").alias("rows"), F.min(SPLIT).alias("split"), value.alias("value"))
    found = each.agg(F.count("*"), F.max(F.struct("rows", "split", "unit", "value"))).head()
    assert found is not None and found[1] is not None, "some split has rows"
    return found[0], found[1]["rows"], found[1]["split"], found[1]["value"]


def _by_time(judged: DataFrame, rows: Mapping[int, int], split: ByTime) -> Shares:
    """Nothing is asked for: only a split with most of the rows, or hardly any, is named, with the time that most rows have."""
    came = shares_of(rows)
    odd = {name: came[name] for name in SPLITS[VALIDATION:] if came[name] > HALF_OF_TIME or came[name] < HARDLY}
    if not odd:
        return Shares(came=came)
    _, most, number, text = _largest(judged, named(split.time), F.first(named(split.time)).cast("string"))
    what = ", ".join(f"{name} has {percent(share)} of the rows" for name, share in odd.items())
    why = f"{most:,} rows, all in {SPLITS[number]}, have {split.time} = {text}" if most > 1 else f"no two rows have the same {split.time}"
    return Shares(came=came, said=f"{what}: {why}; choose other bounds, dataset.split.validation and dataset.split.test")


def of_windows(rows: Mapping[str, int], documents: int, dataset: Dataset) -> Shares:
    """The shares of windows that documents were packed into, which the model sees. Raises SourceError as `compared` does."""
    asked, total = asked_of(dataset), max(sum(rows.values()), 1)
    came = {split: count / total for split, count in rows.items()}
    if not isinstance(dataset.split, ByFraction) or not is_off(asked, came, total):
        return Shares(asked=asked, came=came)
    remedy = "a document goes to one split as a whole: give more documents, or cut long ones in source.query"
    unit = Unit("documents", documents, total, "", "documents differ in length", remedy)
    return checked(described(asked, came, total, unit), dataset)

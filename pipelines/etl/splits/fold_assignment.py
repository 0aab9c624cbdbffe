"""Assigns rows to the folds of a cross-validation, `dataset.split.folds`.

1. `divide_into_folds` gives each row its fold in every repeat: by ranges of a hash of its key, or of its group, with a salt for seed and
   repeat. So its fold depends on nothing else; with `stratify`, the ranges are those that divide the rows of each value equally (`strata`).
   Folds by time begin where the config says.
2. `fold_encoders` describe the columns that hold the folds. They are written with the tensor columns.
3. `count_rows_of_folds` counts their rows in the written files, and refuses a fold without any.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.dataset.dataset import ByFold, ByTimeFold, FoldSplit, Split
from pipelines.config.features.numbers import IdentitySettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.commit import Attempt
from pipelines.data.versions.folds import count_folds
from pipelines.data.versions.manifest import FittedEncoder, Folds, tensor_columns
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import SourceError
from pipelines.etl.splits.split_assignment import (
    FOLDS,
    check_groups_have_one_value,
    exact_column,
    hash_share,
    split_hash,
    stratum_hash,
    time_fold,
)
from pipelines.etl.splits.strata import HASH_BITS, STRATUM, Stratum, apportion, find_limits

_LIMITS = "__limits"
_NAMED = 5


@dataclass(frozen=True)
class DividedRows:
    rows: DataFrame
    note: str = ""
    """What is to be said of values that some fold does not have."""
    encoders: dict[str, FittedEncoder] = field(default_factory=dict)
    """Those of the columns with the folds."""


def divide_into_folds(rows: DataFrame, split: Split) -> DividedRows:
    """The rows with their folds, unless they are split otherwise. Raises SourceError as `add_folds` does."""
    if not isinstance(split, FoldSplit):
        return DividedRows(rows)
    if isinstance(split, ByTimeFold):
        return DividedRows(rows.withColumn(FOLDS[0], time_fold(rows, split)), encoders=fold_encoders(split))
    return DividedRows(*add_folds(rows, split), fold_encoders(split))


def add_folds(rows: DataFrame, split: ByFold) -> tuple[DataFrame, str]:
    """The rows with a column of FOLDS for each repeat, and a line about values that some fold does not have. Raises SourceError if
    `stratify` names a column with too many values, or with several in a group."""
    note = ""
    for repeat, name in enumerate(FOLDS[: split.repeats]):
        share = hash_share(f"fold {split.seed} {repeat}", split_hash(rows, split))
        if split.stratify:
            limits, note = _find_limits(rows, split, share)
            number = F.size(F.filter(_LIMITS, partial(_is_reached, share)))
            rows = rows.withColumn(STRATUM, stratum_hash(rows, split)).join(F.broadcast(limits), STRATUM, "left")
            rows = rows.withColumn(name, number + 1).drop(STRATUM, _LIMITS)
        else:
            rows = rows.withColumn(name, (F.shiftright(share * split.folds, HASH_BITS) + 1).cast("int"))
    return rows, note


def fold_encoders(split: FoldSplit) -> dict[str, FittedEncoder]:
    """Encoders of the columns with the folds, by the names that these have in a version."""
    return {
        name: FittedEncoder(
            feature=IdentitySettings(column=raw).model_dump(mode="json"),
            inputs=(raw,),
            state={"dtype": "uint8", "impute": None},
            column=TensorColumn(name=name, dtype="uint8", role="carried"),
        )
        for name, raw in zip(split.columns, FOLDS, strict=False)
    }


def count_rows_of_folds(attempt: Attempt, groups: Sequence[RowGroup], split: Split) -> Folds | None:
    """Count the rows of the folds in the written files; None for another split. Raises SourceError if a fold has none."""
    if not isinstance(split, FoldSplit):
        return None
    columns = tensor_columns(fold_encoders(split))
    folds = count_folds(attempt.filesystem, attempt.root, groups, columns, split.folds, split.is_by_time)
    check_folds(folds, split)
    return folds


def check_folds(folds: Folds, split: FoldSplit) -> None:
    """Raises SourceError if a fold has no rows."""
    for name, counts in folds.rows.items():
        empty = [number for number, rows in enumerate(counts, 1) if not rows]
        if not empty:
            continue
        if isinstance(split, ByTimeFold):
            bounds, number = ["", *split.fold_starts, ""], empty[0]
            periods = [f"from {bounds[number - 1]}"] * (number > 1) + [f"before {bounds[number]}"] * (number < split.folds)
            raise SourceError(
                f"dataset.split.fold_starts: no row has {split.time} {' and '.join(periods)}, which is fold {number} of {split.folds}; "
                "leave that start out, or give others"
            )
        more = f"more groups of {split.group}" if split.group else "more rows"
        numbers = name_list([str(number) for number in empty])
        raise SourceError(
            f"dataset.split.folds is {split.folds}, but no row of {sum(counts):,} is in {name} {numbers}; give fewer folds, or {more}"
        )


def describe_missing_folds(name: str, strata: Sequence[Stratum], folds: int) -> str:
    """A line about the values that some fold does not have; empty if there are none."""
    missing = sorted((stratum for stratum in strata if stratum.rows < folds), key=lambda stratum: (stratum.rows, stratum.text))
    if not missing:
        return ""
    named = ", ".join(f"{stratum.text} ({stratum.rows:,})" for stratum in missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
    return (
        f"dataset.split.stratify: {len(missing):,} of {len(strata):,} values of {name} have fewer rows than there are folds, and some "
        f"folds have none: {named}; give more rows of them, fewer folds, or make one value of several in source.query"
    )


def _is_reached(share: Column, limit: Column) -> Column:
    return share >= limit


def _find_limits(rows: DataFrame, split: ByFold, share: Column) -> tuple[DataFrame, str]:
    """The hashes from which the rows of each stratum are in the next fold, and the line of `describe_missing_folds`."""
    check_groups_have_one_value(rows, split)
    divide = partial(apportion, shares=[Fraction(1, split.folds)] * split.folds, fills_first=False)
    strata, _, limits = find_limits(rows, stratum_hash(rows, split), exact_column(split.stratify), share, divide, split.stratify)
    numbers = pa.array([stratum.number for stratum in strata], pa.int64())
    table = pa.table({STRATUM: numbers, _LIMITS: pa.array(limits, pa.list_(pa.int64()))})
    return rows.sparkSession.createDataFrame(table), describe_missing_folds(split.stratify, strata, split.folds)

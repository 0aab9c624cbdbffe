"""A version of folds as one training of a cross-validation sees it.

All rows of the version lie in the split `train`, and a column of each repeat has the fold of every row. `select_fold` makes of it a version
in memory whose test split is one fold, whose validation split is the next one, and whose training split has the others. Of folds by time,
the test is the last of the three, and later folds are left out. Its row groups are those of the files: each split has them all, with the
number of its rows in each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pyarrow.fs import FileSystem

from pipelines.config import Config
from pipelines.data.versions.manifest import SPLITS, Folds, split_summaries
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version, open_version, read_stored_columns
from pipelines.errors import DatasetError


@dataclass(frozen=True)
class FoldRowGroup(RowGroup):
    """The rows of a row group that are in certain folds."""

    rows_in_file: int = 0
    fold_column: str = ""
    folds: tuple[int, ...] = ()

    @property
    def stored_rows(self) -> int:
        return self.rows_in_file

    def select(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Raises DatasetError if the rows of the folds are not as many as when the version was opened."""
        selected = np.flatnonzero(np.isin(columns[self.fold_column], self.folds))
        if len(selected) != self.rows:
            raise DatasetError(f"it has {len(selected)} rows of folds {list(self.folds)}, and {self.rows} when the version was opened")
        return {name: values[selected] for name, values in columns.items()}


def fold_splits(folds: int, fold: int) -> dict[str, tuple[int, ...]]:
    """The folds of each split, if `fold` of 1 to `folds` is the test: the one after it is the validation."""
    validation = fold % folds + 1
    train = tuple(number for number in range(1, folds + 1) if number not in (fold, validation))
    return dict(zip(SPLITS, (train, (validation,), (fold,)), strict=True))


def time_fold_splits(training: int) -> dict[str, tuple[int, ...]]:
    """The folds of each split of a training over time, counted from 1: the first is tested on the third fold."""
    return dict(zip(SPLITS, (tuple(range(1, training + 1)), (training + 1,), (training + 2,)), strict=True))


def training_splits(folds: Folds, training: int) -> tuple[str, dict[str, tuple[int, ...]]]:
    """The column of folds, and the folds of each split, of a training, counted from 1 over all repeats."""
    fold = training
    for column, rows in folds.rows.items():
        if fold <= len(rows):
            return column, time_fold_splits(training) if folds.by_time else fold_splits(len(rows), fold)
        fold -= len(rows)
    raise AssertionError(f"there are {folds.trainings} trainings, and none {training}")


def training_rows(folds: Folds, training: int) -> int:
    """Rows of the split `train` of a training, counted from 1 over all repeats."""
    column, by_split = training_splits(folds, training)
    return sum(folds.rows[column][number - 1] for number in by_split[SPLITS[0]])


def select_fold(version: Version, training: int) -> Version:
    """The version with the splits of one training of the cross-validation, counted from 1 over all repeats. Raises CorruptError if a file
    is damaged."""
    folds = version.manifest.folds
    assert folds is not None, "the config has folds, which is part of the identity of a version"
    column, by_split = training_splits(folds, training)
    tensor_column = version.manifest.encoders[column].column
    values = read_stored_columns(version.filesystem, version.root, version.row_groups, [tensor_column])
    groups = [
        FoldRowGroup(**{**vars(group), "split": split, "rows": rows}, rows_in_file=group.rows, fold_column=column, folds=numbers)
        for split, numbers in by_split.items()
        for group, arrays in zip(version.row_groups, values, strict=True)
        if (rows := int(np.isin(arrays[column], numbers).sum()))
    ]
    splits = split_summaries(version.manifest.encoders, groups)
    update = {"splits": splits, "folds": folds.model_copy(update={"selected": training})}
    return replace(version, manifest=version.manifest.model_copy(update=update), row_groups=tuple(groups))


def open_fold(config: Config) -> Version:
    """The version that the config describes; with `train.fold`, with the splits of that training. Raises what `open_version` does."""
    version = open_version(config.dataset.path, config.data_identity)
    return version if config.train.fold is None else select_fold(version, config.train.fold)


def count_folds(
    filesystem: FileSystem, root: str, groups: Sequence[RowGroup], columns: Sequence[TensorColumn], folds: int, by_time: bool = False
) -> Folds:
    """Count the rows of each fold in files that have been written. `columns` have the fold of each row, one for each repeat."""
    values = read_stored_columns(filesystem, root, groups, columns)
    counts = {
        column.name: sum((np.bincount(arrays[column.name], minlength=folds + 1)[1:] for arrays in values), np.zeros(folds, np.int64))
        for column in columns
    }
    return Folds(rows={name: tuple(rows.tolist()) for name, rows in counts.items()}, by_time=by_time)

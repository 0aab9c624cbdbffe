"""A version of folds as one training of a cross-validation sees it.

All rows of the version lie in the split `train`, and a column of each repeat has the fold of every row. `select_fold` makes of it a version
in memory whose test split is one fold, whose validation split is the next one, and whose training split has the others. Of folds by time,
the test is the last of the three, and later folds are left out. Its row groups are those of the files: each split has them all, with the
number of its rows in each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.fs import FileSystem

from pipelines.config import Config
from pipelines.data.versions.manifest import SPLITS, Folds, split_summaries
from pipelines.data.versions.parts import RowGroup
from pipelines.data.versions.row_groups import Columns, RowGroups, as_arrow, as_numpy
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import Version, leave_out_features, open_version, read_columns_by_file
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

    def row_selection(self, read: Callable[[str], np.ndarray]) -> np.ndarray:
        """Raises DatasetError if the rows of the folds are not as many as when the version was opened."""
        selected = np.flatnonzero(np.isin(read(self.fold_column), self.folds))
        if len(selected) != self.rows:
            raise DatasetError(f"it has {len(selected)} rows of folds {list(self.folds)}, and {self.rows} when the version was opened")
        return selected


class FoldRowGroups(RowGroups):
    """Row groups that each split has a share of; the index of the version has each of them once."""

    def __init__(self, columns: Columns, fold_column: str, folds: Mapping[str, tuple[int, ...]], selection: tuple[Any, ...] = ()) -> None:
        """`columns` have the rows of the folds as `rows`, and those in the file as `stored_rows`. `folds` are those of each split, and
        `selection` the arguments of `select_row_groups`, by which they are selected again from a pickle."""
        super().__init__(columns)
        self._fold_column, self._folds, self._selection = fold_column, folds, selection

    @cached_property
    def stored_rows(self) -> np.ndarray:
        return self.column_numbers("stored_rows")

    def __reduce__(self) -> tuple[Any, ...]:
        return (select_row_groups, self._selection) if self._selection else (FoldRowGroups, (self.columns, self._fold_column, self._folds))

    def _row_group(self, values: dict[str, Any], number: int) -> FoldRowGroup:
        stored_rows, folds = int(self.stored_rows[number]), self._folds[values["split"]]
        return FoldRowGroup(**values, rows_in_file=stored_rows, fold_column=self._fold_column, folds=folds)

    def _like(self, group_columns: pa.Table) -> "FoldRowGroups":
        return FoldRowGroups(Columns(self.columns.parts, group_columns), self._fold_column, self._folds)


def select_row_groups(
    groups: RowGroups, fold_column: str, folds: Mapping[str, tuple[int, ...]], rows: Mapping[str, np.ndarray]
) -> FoldRowGroups:
    """For each split those row groups that have rows of its folds. `rows` are those of each row group, by split, shape (row groups,)."""
    parts, group_columns = [], []
    names = groups.columns.parts.column_names
    for number, split in enumerate(folds):
        stored = groups.columns
        parts.append(stored.parts.set_column(names.index("split"), "split", pa.array([split] * len(stored.parts), pa.string())))
        places = as_arrow(as_numpy(stored.group_columns["place"]) + np.int32(number * len(stored.parts)))
        columns = dict(zip(stored.group_columns.column_names, stored.group_columns.columns, strict=True))
        columns |= {"place": places, "rows": as_arrow(rows[split].astype(np.int64)), "stored_rows": stored.group_columns["rows"]}
        of_split = pa.table(columns)
        group_columns.append(of_split if (rows[split] > 0).all() else of_split.filter(pa.array(rows[split] > 0)))
    selection = groups, fold_column, folds, {split: counts.astype(np.int32) for split, counts in rows.items()}
    return FoldRowGroups(Columns(pa.concat_tables(parts), pa.concat_tables(group_columns)), fold_column, folds, selection)


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


def smallest_training(folds: Folds) -> int:
    """The number of the training with the fewest rows."""
    return min(range(1, folds.trainings + 1), key=partial(training_rows, folds))


def fold_config(config: Config, fold: int | None) -> Config:
    """The config of the training of a fold, or of all of them."""
    return config.model_copy(update={"train": config.train.model_copy(update={"fold": fold})})


def select_fold(version: Version, training: int) -> Version:
    """The version with the splits of one training of the cross-validation, counted from 1 over all repeats. Raises CorruptError if a file
    is damaged."""
    folds = version.manifest.folds
    assert folds is not None, "the config has folds, which is part of the identity of a version"
    column, by_split = training_splits(folds, training)
    tensor_column = version.manifest.encoders[column].column
    rows = {split: np.zeros(len(version.row_groups), np.int32) for split in by_split}
    for places, values in read_columns_by_file(version.filesystem, version.root, version.row_groups, [tensor_column]):
        for split, numbers in by_split.items():
            rows[split][places] = [np.isin(arrays[column], numbers).sum() for arrays in values]
    groups = select_row_groups(version.row_groups, column, by_split, rows)
    splits = split_summaries(version.manifest.encoders, groups)
    update = {"splits": splits, "folds": folds.model_copy(update={"selected": training})}
    return replace(version, manifest=version.manifest.model_copy(update=update), row_groups=groups)


def open_fold(config: Config) -> Version:
    """The version that the config describes, as its training reads it: without features that `task.use` leaves out, and with
    `train.fold`, with the splits of that training. Raises what `open_version` does."""
    return training_version(config, open_version(config.dataset.path, config.data_identity))


def training_version(config: Config, version: Version) -> Version:
    """An open version as the config's training reads it: without features that `task.use` leaves out, and with the splits of `train.fold`,
    unless it has those of a fold. Raises CorruptError if a file is damaged."""
    folds, fold = version.manifest.folds, config.train.fold
    if fold is not None and folds is not None and folds.selected is None:
        version = select_fold(version, fold)
    return leave_out_features(version, config.task.left_out)


def open_splits(config: Config) -> Version:
    """As `open_fold`, with all features."""
    version = open_version(config.dataset.path, config.data_identity)
    return version if config.train.fold is None else select_fold(version, config.train.fold)


def count_folds(
    filesystem: FileSystem, root: str, groups: Sequence[RowGroup], columns: Sequence[TensorColumn], folds: int, by_time: bool = False
) -> Folds:
    """Count the rows of each fold in files that have been written. `columns` have the fold of each row, one for each repeat."""
    counts = {column.name: np.zeros(folds, np.int64) for column in columns}
    for _, values in read_columns_by_file(filesystem, root, groups, columns):
        for arrays in values:
            for name in counts:
                counts[name] += np.bincount(arrays[name], minlength=folds + 1)[1:]
    return Folds(rows={name: tuple(rows.tolist()) for name, rows in counts.items()}, by_time=by_time)

"""`dataset.split` by folds: cross-validation."""

from datetime import date
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pipelines.config.section import Section, Seed, Text

MOST_FOLDS, MOST_REPEATS = 100, 20


def _check_folds(folds: int) -> int:
    if not 3 <= folds <= MOST_FOLDS:
        raise ValueError(
            f"one fold is the test, the next one selects the epoch, and the others are for training; give 3 to {MOST_FOLDS}, such as 5"
        )
    return folds


def check_strata(stratify: str, group: str) -> None:
    """Raise ValueError if the rows of a group were to be both divided and kept together."""
    if stratify and stratify == group:
        raise ValueError(f"stratify and group are both {group}, whose rows would be divided and kept together; leave one of them out")


# YAML has parsed 2017-01-01 as a date and 300 as a number; both become text again.
Moment = Annotated[Text, BeforeValidator(lambda value: str(value) if isinstance(value, (date, int, float)) else value)]


class ByFold(Section):
    """Cross-validation: a hash of `key` assigns each row to one of the folds; without a key, the hash is of all columns, and with `group`,
    of that column. `jobs/train.py` trains a model for each fold, which is its test; the next fold selects its epoch, and it is trained on
    the others. Encoders are fitted on the rows of all folds."""

    folds: Annotated[int, AfterValidator(_check_folds)]
    """Number of folds, at least 3."""
    repeats: Annotated[int, Field(ge=1, le=MOST_REPEATS)] = 1
    """How often the rows are assigned anew; each time, a model is trained for each fold."""
    seed: Seed = 0
    """Another seed assigns rows to other folds."""
    group: str = ""
    """Column whose equal values are all in one fold."""
    stratify: str = ""
    """Column of which every fold has the same mix of values: in the rows of each value, NULL included, folds differ by one at most. Rows
    are ordered by the same hash, so equal rows stay together, and so do those of a group, which must have one value."""

    @property
    def is_by_time(self) -> bool:
        """Whether a fold's rows are later than those of the fold before it."""
        return False

    @property
    def trainings(self) -> int:
        """Number of models, one for each fold of each repeat."""
        return self.folds * self.repeats

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a dataset version that hold the fold of each row, from 1, one for each repeat."""
        return ("fold",) if self.repeats == 1 else tuple(f"fold_{repeat + 1}" for repeat in range(self.repeats))

    @model_validator(mode="after")
    def _groups_are_not_divided(self) -> "ByFold":
        check_strata(self.stratify, self.group)
        return self


def _check_starts(starts: tuple[str, ...]) -> tuple[str, ...]:
    if not 2 <= len(starts) < MOST_FOLDS:
        raise ValueError(
            f"{len(starts)} starts make {len(starts) + 1} folds; the first model is trained on one, selects its epoch on the next, and is "
            f"tested on a third; give 2 to {MOST_FOLDS - 1}"
        )
    return starts


class ByTimeFold(Section):
    """Cross-validation over time, with a training split that grows: each model is tested on a fold, its epoch is selected on the fold
    before that, and it is trained on all earlier ones. Encoders are fitted on the rows of all folds."""

    time: Text
    """Column to compare; values are compared in its type."""
    fold_starts: Annotated[tuple[Moment, ...], AfterValidator(_check_starts)]
    """First value of each fold but the first, in order, written as in a SQL literal. Three starts make four folds, and two models: one is
    tested on the third fold, and one on the fourth."""

    @property
    def is_by_time(self) -> bool:
        """Whether a fold's rows are later than those of the fold before it."""
        return True

    @property
    def folds(self) -> int:
        """Number of folds, the first included."""
        return len(self.fold_starts) + 1

    @property
    def repeats(self) -> int:
        """Time divides rows in one way only."""
        return 1

    @property
    def trainings(self) -> int:
        """Number of models: the first two folds test none."""
        return self.folds - 2

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of a dataset version that holds the fold of each row, from 1."""
        return ("fold",)


FoldSplit = ByFold | ByTimeFold
"""Splits for which a model is trained for each fold."""

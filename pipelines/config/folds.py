"""`dataset.split` by folds: cross-validation."""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from pipelines.config.section import Section, Seed

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

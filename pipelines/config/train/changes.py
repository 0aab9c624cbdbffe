"""Settings that change while a model is trained, so that a training with its whole history is one config. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PositiveInt, model_validator

from pipelines.config.section import Section

CHANGES = "train.changes"
"""The dotted name of the setting that lists them."""
CHANGEABLE = ("lr", "weight_decay")
"""Settings of `train` that may change."""


class TrainChange(Section):
    """Other values of settings from an epoch on, until the next change that names them."""

    after_epoch: PositiveInt
    """The last epoch with the values before, counted from 1."""
    lr: Annotated[float, Field(gt=0)] | None = None
    """Learning rate at the peak of the schedule, which goes on where it is: at half the peak, it is at half the new one."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Weight decay."""

    @model_validator(mode="after")
    def _changes_something(self) -> "TrainChange":
        if all(getattr(self, name) is None for name in CHANGEABLE):
            raise ValueError(f"after epoch {self.after_epoch} nothing changes; give it {' or '.join(CHANGEABLE)}, or remove it")
        return self


def check_changes(changes: Sequence[TrainChange], epochs: int) -> None:
    """Raise ValueError unless changes are in the order of their epochs, each of which another one follows."""
    places = [change.after_epoch for change in changes]
    if places != sorted(set(places)):
        raise ValueError(f"changes are after epochs {places}; give one for each epoch, the first one first")
    if places and places[-1] >= epochs:
        raise ValueError(
            f"changes has one after epoch {places[-1]}, which none of the {epochs} epochs follows; raise epochs to more, or remove it"
        )


def value_after(value: float, name: str, changes: Sequence[TrainChange], epochs: int) -> float:
    """The value of a setting, which has this one at first, after so many epochs."""
    values = [changed for change in changes if change.after_epoch <= epochs and (changed := getattr(change, name)) is not None]
    return values[-1] if values else value


def changes_text(changes: Sequence[Mapping[str, Any]]) -> str:
    """`after epoch 2 lr 0.004; after epoch 3 lr 0.005, weight_decay 0.1`, of plain values; empty if there are none."""
    texts = [
        f"after epoch {change['after_epoch']} {', '.join(f'{name} {change[name]}' for name in CHANGEABLE if change.get(name) is not None)}"
        for change in changes
    ]
    return "; ".join(texts)

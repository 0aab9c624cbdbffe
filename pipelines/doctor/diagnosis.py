"""The result of one check of the doctor."""

from dataclasses import dataclass
from typing import Literal

from pipelines.errors import LockstepError
from pipelines.runtime.disks import Reading

Status = Literal["ok", "note", "wrong"]


@dataclass(frozen=True)
class Diagnosis:
    """One line: what was checked, and what is there, or else the fault and its remedy."""

    name: str
    text: str
    status: Status = "ok"
    exit_code: int = 0
    """Of the error that a command would raise for it."""


def to_diagnosis(name: str, reading: Reading, error: type[LockstepError] | None) -> Diagnosis:
    """The line of a reading; without an error class, a fault is only a note."""
    if not reading.fault:
        return Diagnosis(name, reading.text)
    return Diagnosis(name, reading.fault, "wrong", error.exit_code) if error else Diagnosis(name, reading.fault, "note")

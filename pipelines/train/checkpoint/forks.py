"""Copies what a run has saved after an epoch into the directory of another one, which then goes on from there with other settings.

The record of a checkpoint is copied last of all: a copy that was killed before is none, and its run begins anew.
"""

from collections.abc import Callable
from typing import Any

from pipelines.data.versions.storage import unseal_or_none
from pipelines.errors import TrainingError
from pipelines.train.checkpoint.checkpoint_record import FORMAT, RECORD, copy_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory


def has_epoch(directory: RunDirectory, epoch: int) -> bool:
    """Whether a run has saved a state with so many epochs, or more. Raises TrainingError if the store fails."""
    return any(values["state"]["epochs"] >= epoch for values in _records(directory).values())


def find_epoch(directory: RunDirectory, epoch: int) -> str | None:
    """The checkpoint of a run after so many epochs and no further step; None unless it is there, with that of its best epoch. Raises
    TrainingError if the store fails."""
    records = _records(directory)
    for name, values in records.items():
        state = values["state"]
        if (state["epochs"], state["validated"]) == (epoch, values["step"]) and _find_best(records, values) is not None:
            return name
    return None


def copy_epoch(source: RunDirectory, target: RunDirectory, name: str, before_last: Callable[[int], None]) -> None:
    """Copy a checkpoint that `find_epoch` has found, that of its best epoch, and the log of digests until then. `before_last` is called
    with the checkpoint's step once only its record is left to copy. Raises TrainingError if the store fails, or if a file is gone."""
    records = _records(source)
    step, best = int(records[name]["step"]), _find_best(records, records[name])
    assert best is not None, "as `find_epoch` has made sure"
    for checkpoint in dict.fromkeys((best, name)):
        for file in source.names(checkpoint):
            if file != RECORD:
                source.copy(f"{checkpoint}/{file}", target)
    copy_digest_log(source, target, step)
    before_last(step)
    for checkpoint in dict.fromkeys((best, name)):
        content = source.get(f"{checkpoint}/{RECORD}")
        if content is None:
            raise TrainingError(f"{source.path}/{checkpoint}/{RECORD} is gone")
        target.put(f"{checkpoint}/{RECORD}", content)


def _records(directory: RunDirectory) -> dict[str, dict[str, Any]]:
    """The records of complete checkpoints, by the checkpoint's name."""
    names = [f"checkpoints/{base}" for base in directory.names("checkpoints")]
    contents = {name: content for name in names if (content := directory.get(f"{name}/{RECORD}")) is not None}
    records = {name: values for name, content in contents.items() if (values := unseal_or_none(content)) is not None}
    return {name: values for name, values in records.items() if values["format"] <= FORMAT}


def _find_best(records: dict[str, dict[str, Any]], values: dict[str, Any]) -> str | None:
    """The checkpoint of the best epoch that a record names."""
    epoch = values["state"]["best_epoch"]
    return next((name for name, other in records.items() if other["best"] and other["state"]["epochs"] == epoch), None)

"""Watches the workers from the driver: prints how far they are, passes interrupts on, words their failures."""

import signal
import time
from collections.abc import Callable
from threading import Thread, current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError

from pipelines import errors
from pipelines.errors import LockstepError, TrainingError
from pipelines.train.folder import PROGRESS, STOP, Folder
from pipelines.train.progress import Progress

LEAVE_SECONDS = 120.0
"""For the workers to save and leave once they were asked to."""
_LOOK_SECONDS = {True: 0.5, False: 5.0}


class Interrupts:
    """SIGINT and SIGTERM, meanwhile: the first is remembered, for the workers to save and leave; the second does not wait."""

    def __init__(self, told: Callable[[], None]) -> None:
        self.signal: int | None = None
        self._told = told
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if current_thread() is main_thread():
            self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number

    def tell(self) -> None:
        """Say at once that it was interrupted: whoever sent SIGTERM may not wait for the workers."""
        self._told()


def watch(trainer: TorchTrainer, folder: Folder, interrupts: Interrupts, progress: Progress) -> dict[str, Any]:
    """Run the trainer and return what rank 0 returned. Raises the LockstepError that ended it, or Ray's own error."""
    answer: dict[str, Any] = {}

    def fit() -> None:  # not in the main thread, where Ray would take SIGINT for itself and leave no time to save
        try:
            answer["value"] = trainer.fit().return_value  # type: ignore[attr-defined]  # typed as Train v1 has it
        except TrainingFailedError as error:
            answer["error"] = error

    thread = Thread(target=fit, name="ray-train", daemon=True)
    thread.start()
    leave_by: float | None = None
    while thread.is_alive():
        thread.join(_LOOK_SECONDS[folder.is_local])
        progress.show(folder.get_json(PROGRESS))
        if interrupts.signal is not None and leave_by is None:
            leave_by = time.monotonic() + LEAVE_SECONDS
            folder.put(STOP, b"")
            progress.say("stopping: the workers save and leave; once more to stop at once")
            interrupts.tell()
        if leave_by is not None and time.monotonic() > leave_by:
            raise KeyboardInterrupt
    if "error" in answer:
        raise _worded(answer["error"]) from answer["error"]
    value: dict[str, Any] = answer["value"]
    if failure := value.get("failure"):
        raise _error(failure)
    return value


def _error(failure: dict[str, str]) -> LockstepError:
    """The error that a worker described."""
    kind: type[LockstepError] = getattr(errors, failure["kind"])
    return kind(failure["message"])


def _worded(error: TrainingFailedError) -> BaseException:
    """A worker's own LockstepError, or what Ray says in our words; a defect of the task's code stays as it is."""
    if isinstance(error, ControllerError):
        return TrainingError(f"Ray could not start the workers: {error.controller_failure}; lower train.workers or add machines")
    causes = [getattr(cause, "_base_exc", cause) for cause in error.worker_failures.values()] if isinstance(error, WorkerGroupError) else []
    for cause in causes:
        if isinstance(cause, LockstepError):
            return cause
    if any(hasattr(cause, "_base_exc") for cause in getattr(error, "worker_failures", {}).values()):
        return error
    died = "; ".join(f"worker {rank}: {str(cause).splitlines()[0]}" for rank, cause in getattr(error, "worker_failures", {}).items())
    return TrainingError(
        f"workers died more often than train.max_failures allows ({died}); the same command goes on from the last checkpoint"
    )

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
from pipelines.train.cluster import Machines, release
from pipelines.train.folder import PROGRESS, RESERVATION, STOP, Folder
from pipelines.train.progress import Progress

LEAVE_SECONDS = 120.0
"""For the workers to save and leave once they were asked to."""
_LOOK_SECONDS = {True: 0.5, False: 5.0}


class Interrupts:
    """SIGINT and SIGTERM, meanwhile: the first is remembered, for the workers to save and leave; the second does not wait."""

    def __init__(self) -> None:
        self.signal: int | None = None
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
            raise SystemExit(128 + number)
        self.signal = number


def watch(trainer: TorchTrainer, folder: Folder, progress: Progress, interrupted: Callable[[], None]) -> dict[str, Any]:
    """Run the trainer and return what rank 0 returned.

    On a signal the workers save and leave; `interrupted` is called at once, since whoever sent SIGTERM may not wait for
    them. Raises SystemExit with 128 + its number then, else the LockstepError that ended the training, or Ray's own.
    """
    answer: dict[str, Any] = {}

    def fit() -> None:  # not in the main thread, where Ray would take SIGINT for itself and leave no time to save
        try:
            answer["value"] = trainer.fit().return_value  # type: ignore[attr-defined]  # typed as Train v1 has it
        except TrainingFailedError as error:
            answer["error"] = error

    machines = _machines(trainer, folder) if trainer.scaling_config.elasticity_enabled else None  # type: ignore[attr-defined]  # as above
    thread = Thread(target=fit, name="ray-train", daemon=True)
    with Interrupts() as interrupts:
        thread.start()
        leave_by: float | None = None
        while thread.is_alive() and (leave_by is None or time.monotonic() < leave_by):
            thread.join(_LOOK_SECONDS[folder.is_local])
            if machines:
                machines.look()
            progress.show(folder.glance(PROGRESS))
            if interrupts.signal is not None and leave_by is None:
                leave_by = time.monotonic() + LEAVE_SECONDS
                progress.say("stopping: the workers save and leave; once more to stop at once")
                folder.put(STOP, b"")
                interrupted()
    value = _answered(answer)
    if not value.get("finished") and interrupts.signal is not None:
        if value:
            progress.say(f"stopped after step {value['steps']:,}, which is saved: the same command goes on from there")
        raise SystemExit(128 + interrupts.signal)
    return value


def _machines(trainer: TorchTrainer, folder: Folder) -> Machines:
    """Those of an elastic group; what an earlier driver of the run still has reserved is free again."""
    if earlier := folder.get(RESERVATION):
        release(earlier.decode())
    folder.put(RESERVATION, f"train-{trainer.train_run_context.run_id}".encode())  # type: ignore[attr-defined]  # as above
    return Machines()


def _answered(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise _worded(answer["error"]) from answer["error"]
    value: dict[str, Any] = answer.get("value", {})
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

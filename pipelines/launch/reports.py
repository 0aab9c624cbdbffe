"""Callbacks of a Ray Train worker's loop: they report to Ray, to MLflow, and to the driver through the run's directory."""

import logging
import os
import time
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import ray.train

from pipelines.checkpoint.run_directory import ATTEMPT, LOOK_SECONDS, PROGRESS, STOP, RunDirectory
from pipelines.collectives.agree import of_rank_0
from pipelines.errors import TrainingError
from pipelines.launch.heartbeat import Heartbeat
from pipelines.tracking import Sender
from pipelines.train.hooks import Silent

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""Ray's controller takes a report every two seconds, and who reports more often waits for it."""
REPLACED_EXIT_CODE = 3


class Reports(Silent):
    """What every worker does: tells Ray of checkpoints, at the same steps, and the others in which step it is."""

    def __init__(self, directory: RunDirectory, heartbeat: Heartbeat) -> None:
        self._directory, self._heartbeat = directory, heartbeat
        self._reported = self._looked = time.monotonic()
        self._breaks_off = False

    def step(self, number: int) -> None:
        self._heartbeat.step = number

    def asked_to_break_off(self) -> bool:
        if time.monotonic() - self._looked >= LOOK_SECONDS[self._directory.is_local]:
            self._looked = time.monotonic()
            try:
                self._breaks_off = self._directory.has(STOP)
            except TrainingError as error:  # what must be written is the checkpoints' to say
                log.warning("%s", error)
        return self._breaks_off

    def saved(self, step: int, path: str) -> None:
        """Report a checkpoint that is where it belongs; rank 0's clock says whether it is time for that again."""
        if of_rank_0(time.monotonic() - self._reported >= REPORT_SECONDS):
            self._reported = time.monotonic()
            ray.train.report(
                {"step": step},
                ray.train.Checkpoint(path, self._directory.filesystem),
                checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD,
            )


class FirstReports(Reports):
    """What rank 0 does beside, in a thread: writes how far it is, looks whether it should stop. `close` ends it.

    Where the network parts them, an old group may live on after Ray has given it up and started another: its rank 0 ends
    itself, and so the group, as soon as it sees that the directory is another's.
    """

    def __init__(self, directory: RunDirectory, heartbeat: Heartbeat, total_steps: int, epochs: int) -> None:
        super().__init__(directory, heartbeat)
        self._progress: dict[str, Any] = {"step": 0, "steps": total_steps, "epoch": 0, "epochs": epochs, "metrics": {}}
        self._attempt = uuid4().hex.encode()
        directory.put(ATTEMPT, self._attempt)
        self._stop, self._closed = Event(), Event()
        if directory.has(STOP):
            self._stop.set()
        self._thread = Thread(target=self._exchange, name="run-directory", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._progress = {**self._progress, "step": step, "metrics": {**self._progress["metrics"], **metrics}}

    def epoch(self, number: int) -> None:
        self._progress = {**self._progress, "epoch": number}

    def asked_to_stop(self) -> bool:
        return self._stop.is_set()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _exchange(self) -> None:
        written: dict[str, Any] = {}
        while not self._closed.wait(LOOK_SECONDS[self._directory.is_local]):
            try:
                if self._progress is not written:
                    written = self._progress
                    self._directory.put_json(PROGRESS, written, durable=False)
                if self._directory.get(ATTEMPT) not in (self._attempt, None):
                    log.error("another group of workers has started in %s: this one ends", self._directory.uri)
                    os._exit(REPLACED_EXIT_CODE)
                if self._directory.has(STOP):
                    self._stop.set()
            except TrainingError as error:  # what must be written is the checkpoints' to say
                log.warning("%s", error)


class TrackedReports(FirstReports):
    """What rank 0 of a training does beside: it sends metrics and texts to MLflow, too. `finish` ends it."""

    def __init__(self, directory: RunDirectory, heartbeat: Heartbeat, sender: Sender, total_steps: int, epochs: int) -> None:
        super().__init__(directory, heartbeat, total_steps, epochs)
        self._sender = sender

    def log(self, step: int, metrics: dict[str, float]) -> None:
        self._sender.log(step, metrics)
        super().log(step, metrics)

    def write(self, epoch: int, text: str) -> None:
        self._sender.write(f"samples/epoch-{epoch:04}.txt", text)

    def unsent(self) -> list[Any]:
        return list(self._sender.unsent())

    def resend(self, points: list[Any]) -> None:
        self._sender.resend(points)

    def finish(self, seconds: float) -> list[Any]:
        """Send what is left, for so long at most, and return the rest."""
        self.close()
        return list(self._sender.close(seconds))

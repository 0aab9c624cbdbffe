"""Callbacks of a Ray Train worker's loop: they report to Ray, to MLflow, to Prometheus, and to the driver through the run's directory."""

import logging
import os
import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import ray.train
from ray.util.metrics import Gauge

from pipelines.errors import TrainingError
from pipelines.monitor.worker_heartbeat import Heartbeat
from pipelines.report.evaluation import archive_name, pack
from pipelines.runtime.slower_ways import slower_ways
from pipelines.tasks.details import EvaluationData
from pipelines.tasks.metrics.table import Value, numbers_only
from pipelines.train.checkpoint.run_directory import ATTEMPT, ATTEMPTS, LOOK_SECONDS, PROGRESS, STOP, RunDirectory
from pipelines.train.run_context import Hooks
from pipelines.train.workers import broadcast_from_rank0

if TYPE_CHECKING:
    from pipelines.tracking import Sender  # loads MLflow, which only rank 0 needs

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0
"""Least time between reports to Ray, whose controller takes one every two seconds and blocks a worker that reports sooner."""
REPLACED_EXIT_CODE = 3
"""Exit code of a worker whose group was replaced by another one."""
GAUGES = {
    "train/loss": ("lockstep_train_loss", "Loss of the training split since the last point"),
    "train/rows_per_second": ("lockstep_train_rows_per_second", "Rows trained on in a second, by all workers"),
    "train/step_seconds": ("lockstep_train_step_seconds", "Seconds of a step"),
    "train/data_wait_fraction": ("lockstep_train_data_wait_fraction", "Share of the time in which workers wait for data"),
}
"""By MLflow's name of the metric: the gauge, and what it is."""
STEP, STEPS = "lockstep_train_step", "lockstep_train_steps"


class Gauges:
    """The gauges of one run, set by its rank 0; they end with its process."""

    def __init__(self, pipeline: str, run_id: str, total_steps: int) -> None:
        self._tags = {"pipeline": pipeline, "run": run_id}
        keys = tuple(self._tags)
        self._gauges = {metric: Gauge(name, text, keys) for metric, (name, text) in GAUGES.items()}
        self._step = Gauge(STEP, "Steps of the run that are done", keys)
        self._step.set(0, self._tags)
        Gauge(STEPS, "Steps of the run in all", keys).set(total_steps, self._tags)

    def show(self, step: int, metrics: Mapping[str, float]) -> None:
        self._step.set(step, self._tags)
        for metric in self._gauges.keys() & metrics.keys():
            self._gauges[metric].set(metrics[metric], self._tags)


class Reports(Hooks):
    """The callbacks of every worker: report checkpoints to Ray, at the same steps, and this worker's step to the heartbeat."""

    def __init__(self, directory: RunDirectory, heartbeat: Heartbeat) -> None:
        self._directory, self._heartbeat = directory, heartbeat
        self._reported = self._looked = time.monotonic()
        self._breaks_off = False
        self.begins: Callable[[int], None] = lambda step: None
        """Called with every step that begins, counted from 1."""

    def step(self, number: int) -> None:
        self._heartbeat.step = number
        self.begins(number + 1)

    def must_stop_evaluation(self) -> bool:
        if time.monotonic() - self._looked >= LOOK_SECONDS[self._directory.is_local]:
            self._looked = time.monotonic()
            try:
                self._breaks_off = self._directory.has(STOP)
            except TrainingError as error:  # if the store stays down, saving a checkpoint raises
                log.warning("%s", error)
        return self._breaks_off

    def report_checkpoint(self, step: int, path: str) -> None:
        """Report a complete checkpoint to Ray, if the last report is REPORT_SECONDS ago by rank 0's clock."""
        if broadcast_from_rank0(time.monotonic() - self._reported >= REPORT_SECONDS):
            self._reported = time.monotonic()
            ray.train.report(
                {"step": step},
                ray.train.Checkpoint(path, self._directory.filesystem),
                checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD,
            )


class RankZeroReports(Reports):
    """The callbacks of rank 0. In a thread it also writes the progress and polls for requests to stop. `close` ends the thread.

    After a network partition, Ray may have started another group of workers while the old one still runs. The old rank 0
    exits, and so ends its group, as soon as it sees that another group owns the directory.
    """

    def __init__(self, directory: RunDirectory, heartbeat: Heartbeat, total_steps: int, epochs: int) -> None:
        super().__init__(directory, heartbeat)
        self._attempt = uuid4().hex.encode()
        attempt = {"attempt": self._attempt.decode(), "first_step": None}
        self._progress: dict[str, Any] = {**attempt, "step": 0, "steps": total_steps, "epoch": 0, "epochs": epochs, "metrics": {}}
        directory.put(ATTEMPT, self._attempt)
        self._stop, self._closed = Event(), Event()
        if directory.has(STOP):
            self._stop.set()
        self._thread = Thread(target=self._exchange, name="run-directory", daemon=True)
        self._thread.start()

    def step(self, number: int) -> None:
        super().step(number)
        if self._progress["first_step"] is None:
            self._progress = {**self._progress, "first_step": number}

    def log(self, step: int, metrics: Mapping[str, Value]) -> None:
        self._progress = {**self._progress, "step": step, "metrics": {**self._progress["metrics"], **metrics}}

    def epoch(self, number: int) -> None:
        self._progress = {**self._progress, "epoch": number}

    def must_stop_training(self) -> bool:
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
                    log.error("another group of workers has started in %s; this one exits", self._directory.uri)
                    os._exit(REPLACED_EXIT_CODE)
                if self._directory.has(STOP):
                    self._stop.set()
            except TrainingError as error:  # if the store stays down, saving a checkpoint raises
                log.warning("%s", error)


class TrackedReports(RankZeroReports):
    """The callbacks of rank 0 in a training: they also send metrics and texts to MLflow, and show gauges. `finish` ends them."""

    def __init__(
        self,
        directory: RunDirectory,
        heartbeat: Heartbeat,
        sender: "Sender",
        gauges: Gauges,
        total_steps: int,
        epochs: int,
        workers: int = 1,
    ) -> None:
        super().__init__(directory, heartbeat, total_steps, epochs)
        self._sender, self._gauges, self._workers = sender, gauges, workers
        self._has_begun = False
        self._earlier_attempts: list[dict[str, Any]] = []
        self._this_attempt: dict[str, Any] = {}
        """This group of workers in the run's list, and those before it."""

    def log(self, step: int, metrics: Mapping[str, Value]) -> None:
        numbers = numbers_only(metrics)
        self._sender.log(step, numbers)
        self._gauges.show(step, numbers)
        super().log(step, metrics)

    def step(self, number: int) -> None:
        if not self._has_begun:
            self._has_begun = True

            def note() -> None:  # in the run's list of groups of workers, which shows restarts and resizes
                self._earlier_attempts = (self._directory.glance(ATTEMPTS) or {}).get("attempts", [])
                self._this_attempt = {"seconds": time.time(), "step": number, "workers": self._workers}
                self._put_attempts()

            self._quietly(note)
        elif slower_ways() != self._this_attempt.get("slower", []):
            self._this_attempt["slower"] = slower_ways()
            self._quietly(self._put_attempts)
        super().step(number)

    def _put_attempts(self) -> None:
        self._directory.put_json(ATTEMPTS, {"attempts": [*self._earlier_attempts, self._this_attempt]}, durable=False)

    def keep_evaluation(self, evaluation: EvaluationData) -> None:
        self._quietly(
            lambda: self._directory.put(archive_name(evaluation.split), pack(evaluation.summary, evaluation.tables), durable=False)
        )

    def note_end(self, steps: int) -> None:
        """This group of workers ends after `steps` steps of the run, which are saved."""
        if self._this_attempt:
            self._this_attempt |= {"ended": time.time(), "steps": steps, "slower": slower_ways()}
            self._quietly(self._put_attempts)

    def _quietly(self, act: Callable[[], None]) -> None:
        """Do what only the run's page needs; an error is logged, and does not fail the training."""
        try:
            act()
        except Exception as error:  # details of a task of one's own may be anything
            log.warning("the run's page will lack something: %s: %s", type(error).__name__, error)

    def write(self, epoch: int, text: str) -> None:
        self._sender.write(f"samples/epoch-{epoch:04}.txt", text)

    def unsent(self) -> list[Any]:
        return list(self._sender.unsent())

    def resend(self, points: list[Any]) -> None:
        self._sender.resend(points)

    def finish(self, seconds: float) -> list[Any]:
        """Send the remaining metrics, for `seconds` at most, and return those that could not be sent."""
        self.close()
        return list(self._sender.close(seconds))

"""Sends metrics from rank 0: in batches, from a thread, each point once, across outages and restarts."""

import logging
import time
from collections import deque
from collections.abc import Mapping
from threading import Event, Lock, Thread
from typing import Any

from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import METRICS_PER_CALL, connect, mlflow_errors
from pipelines.tracking.descriptions import mlflow_metric

log = logging.getLogger(__name__)


Point = tuple[int, int, dict[str, float]]
"""Time in ms; step; metrics by name."""
BEST_EPOCH = "best_epoch"
"""The metric that a finished training has at its final step."""


def final_step(steps: int) -> int:
    """The step of the final values of a training's metrics: one more than it has, since each curve may have a point of its last step."""
    return steps + 1


def final_point(steps: int, best_epoch: int, metrics: Mapping[str, float]) -> Point:
    """The metrics of the best epoch as the final ones, by which MLflow sorts runs. Without this point, it would sort by the last epoch."""
    return int(time.time() * 1_000), final_step(steps), {**metrics, BEST_EPOCH: float(best_epoch)}


class Sender:
    """Keeps points until MLflow has acknowledged them.

    A point gets its time once, so that MLflow recognises it when it is sent again after a lost response. Points that MLflow had
    before this sender started are not sent again: after a resume, steps since the checkpoint are computed a second time.
    """

    def __init__(self, uri: str, run_id: str, every_seconds: float) -> None:
        self._uri, self._run_id, self._every = uri, run_id, every_seconds
        self._points: deque[Point] = deque()
        self._texts: deque[tuple[str, str]] = deque()
        self._lock, self._wake, self._closed = Lock(), Event(), False
        self._acknowledged: Mapping[str, int] | None = None
        """Last step of each metric in MLflow when this sender first connected."""
        self._away_since: float | None = None
        self._defect: Exception | None = None
        """Exception that ended the thread. It is raised when points are added, which otherwise would silently remain unsent."""
        self._thread = Thread(target=self._run, name="tracking", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add a point; returns at once. Raises the exception that ended the thread, if it has ended."""
        self._check()
        with self._lock:
            self._points.append((int(time.time() * 1_000), step, dict(metrics)))

    def write(self, file: str, text: str) -> None:
        """Queue a text to log as an artifact with this name; returns at once. Texts that are unsent when this process ends are lost."""
        self._texts.append((file, text))

    def unsent(self) -> list[Point]:
        """Points that MLflow has not acknowledged, oldest first, as JSON values."""
        with self._lock:
            return list(self._points)

    def resend(self, points: list[Any]) -> None:
        """Add points from `unsent` of an earlier sender."""
        with self._lock:
            self._points.extendleft((stamp, step, metrics) for stamp, step, metrics in reversed(points))

    def close(self, seconds: float) -> list[Point]:
        """Send the remaining points for at most this many seconds. Returns those that are still unsent."""
        self._closed = True
        self._wake.set()
        self._thread.join(timeout=seconds)
        self._check()
        return self.unsent()

    def _check(self) -> None:
        if self._defect is not None:
            raise self._defect

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._defect = error

    def _work(self) -> None:
        while True:
            self._wake.wait(self._every)
            try:
                self._send()
                if self._away_since is not None:
                    log.warning("MLflow is reachable again after %.0f s; all points are sent", time.monotonic() - self._away_since)
                self._away_since = None
            except (MlflowException, TrackingError) as error:
                if self._away_since is None:
                    log.warning("MLflow is unreachable, training continues: %s", str(error).splitlines()[0])
                    self._away_since = time.monotonic()
            if self._closed:
                if not self._points and not self._texts:
                    return
                time.sleep(1.0)

    def _send(self) -> None:
        client = connect(self._uri)
        if self._acknowledged is None:
            # `Run.data.metrics` has values without steps; the protobuf message has both.
            latest = client.get_run(self._run_id).to_proto().data.metrics
            self._acknowledged = {metric.key: metric.step for metric in latest}
        while batch := self._next_batch():
            last_steps = self._acknowledged
            metrics = [
                Metric(mlflow_metric(name), value, stamp, step)
                for stamp, step, values in batch
                for name, value in values.items()
                if step > last_steps.get(mlflow_metric(name), -1)
            ]
            if metrics:
                client.log_batch(self._run_id, metrics=metrics, synchronous=True)
            with self._lock:
                for _ in batch:
                    self._points.popleft()
        while self._texts:
            file, text = self._texts[0]
            with mlflow_errors(self._uri):
                client.log_text(self._run_id, text, file)
            self._texts.popleft()

    def _next_batch(self) -> list[Point]:
        """The oldest points, as many as fit into one call."""
        with self._lock:
            batch: list[Point] = []
            metrics = 0
            for point in self._points:
                metrics += len(point[2])
                if batch and metrics > METRICS_PER_CALL:
                    break
                batch.append(point)
            return batch

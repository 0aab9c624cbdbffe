"""An MLflow run while it is under way: creates it, sends heartbeats, logs values and files, and sets the final status."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.registry import resolve_tags

from pipelines.config import Config
from pipelines.errors import TrackingError
from pipelines.runtime.interrupts import DeferredSignals, first_signal, mark_done
from pipelines.tracking.client import METRICS_PER_CALL, connect, mlflow_errors
from pipelines.tracking.descriptions import DESCRIPTION, run_name
from pipelines.tracking.run_heartbeat import DATASET, HEARTBEAT, beating, describe_beat, heartbeat, is_of_another
from pipelines.tracking.sender import Sender

log = logging.getLogger(__name__)
OneRun = TypeVar("OneRun", bound="MlflowRun")

KIND = "mlflow.lockstep.kind"
"""Tag of runs that are not trainings."""
_TAG_LINES = 10
"""MLflow takes a few thousand characters."""
_NAMES = {"etl": "ETL"}
"""How runs of a kind are named, where that is not its tag."""
Status = Literal["FINISHED", "FAILED", "KILLED", "SCHEDULED"]
"""Of these, SCHEDULED is that of a training which stopped where it was told to, and may be continued."""


@dataclass(frozen=True)
class MlflowRun:
    """A run that has begun."""

    client: MlflowClient
    uri: str
    run_id: str

    def tag(self, tags: Mapping[str, str]) -> None:
        with mlflow_errors(self.uri):
            for name, value in tags.items():
                self.client.set_tag(self.run_id, name, value)

    def add_line(self, tag: str, line: str) -> None:
        """Add a line to a tag, which keeps the last ones. If MLflow is unreachable, only warn: the run goes on."""
        try:
            earlier = self.client.get_run(self.run_id).data.tags.get(tag, "").splitlines()
            self.client.set_tag(self.run_id, tag, "\n".join([*earlier, line][-_TAG_LINES:]))
        except MlflowException as error:
            log.warning("run %s lacks a line in its tag %s: %s: %s", self.run_id, tag, line, str(error).splitlines()[0])

    def log_metrics(self, values: Mapping[str, float]) -> None:
        """Log values of this moment, by names as MLflow takes them."""
        now = int(time.time() * 1_000)
        metrics = [Metric(name, float(value), now, 0) for name, value in values.items()]
        with mlflow_errors(self.uri):
            for start in range(0, len(metrics), METRICS_PER_CALL):
                self.client.log_batch(self.run_id, metrics[start : start + METRICS_PER_CALL], synchronous=True)

    def describe(self, text: str) -> None:
        """Set the description that MLflow shows first, in Markdown."""
        self.tag({DESCRIPTION: text})

    def artifact_page(self, file: str) -> str:
        """The address of an artifact in MLflow's pages, relative to that of the run."""
        with mlflow_errors(self.uri):
            experiment_id = self.client.get_run(self.run_id).info.experiment_id
        return f"#/experiments/{experiment_id}/runs/{self.run_id}/artifacts/{file}"

    def file(self, name: str, content: bytes) -> None:
        """Log a file as an artifact with this name, which may have a folder."""
        folder, _, base = name.rpartition("/")
        with TemporaryDirectory() as temporary, mlflow_errors(self.uri):
            path = Path(temporary) / base
            path.write_bytes(content)
            self.client.log_artifact(self.run_id, str(path), folder or None)

    def send(self, points: list[Any], seconds: float = 60.0) -> None:
        """Send points that a `Sender` could not send. Raises TrackingError if that takes longer than `seconds`."""
        if points:
            sender = Sender(self.uri, self.run_id, every_seconds=1.0)
            sender.resend(points)
            if unsent := sender.close(seconds):
                raise TrackingError(f"{len(unsent)} points of run {self.run_id} are still unsent to {self.uri}; run the same command again")

    def file_folder(self, folder: str) -> None:
        """Log the files in a folder as artifacts, with its structure."""
        with mlflow_errors(self.uri):
            self.client.log_artifacts(self.run_id, folder)

    def end(self, status: Status) -> None:
        """Set the status of the run, and clear its heartbeat, so that it can be resumed at once."""
        self.set_status(status, is_over=True)

    def set_status(self, status: Status, is_over: bool = False) -> None:
        """Set the status of the run, by default while this process is still at work on it, with its heartbeat; nothing if another process
        has resumed it. If MLflow is unreachable, only warn: the next command corrects the status."""
        try:
            if is_of_another(tags := self.client.get_run(self.run_id).data.tags):
                log.warning("run %s stays as it is: it was resumed by %s", self.run_id, describe_beat(tags))
                return
            self.client.set_terminated(self.run_id, status)
            if is_over:
                self.client.set_tag(self.run_id, HEARTBEAT, "")
        except MlflowException as error:
            log.warning("the status of run %s could not be set to %s: %s", self.run_id, status, str(error).splitlines()[0])


def create_run(client: MlflowClient, config: Config, experiment: str, tags: Mapping[str, str], kind: str = "") -> str:
    """Create a run with its config, and with these tags and those that every run has; a training is of no `kind`. Returns its ID, and
    raises what MLflow does."""
    all_tags = {**resolve_tags(), **tags, HEARTBEAT: heartbeat(), DATASET: config.dataset.path}
    if kind:
        all_tags[KIND] = kind
    run_id = str(client.create_run(experiment, tags=all_tags, run_name=run_name(config, _NAMES.get(kind, kind))).info.run_id)
    client.log_text(run_id, config.model_dump_json(indent=1), "config.json")
    return run_id


@contextmanager
def tracked_run(
    begin: Callable[[], OneRun], ends_job: bool = True, final_status: Callable[[], Status] = lambda: "FINISHED"
) -> Iterator[OneRun]:
    """Begin a run and send heartbeats inside the `with` block. The run ends with its `final_status`, as KILLED on SIGINT and SIGTERM, or as
    FAILED on another exception. Signals are deferred while the run is begun and while it is ended; with `ends_job`, nothing is left after
    it for a signal to interrupt."""
    with DeferredSignals() as signals:
        run = begin()
        try:
            with beating(run.client, run.run_id), signals.admitted():
                yield run
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit) or first_signal() is not None
            run.end("KILLED" if interrupted else "FAILED")
            raise
        run.end(final_status())
        if ends_job:
            signals.forget()
            mark_done()


def is_reachable(uri: str, seconds: float) -> bool:
    """Whether MLflow responds within this many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connect(uri).search_experiments(max_results=1)
        except MlflowException as error:
            if time.monotonic() > deadline:
                return False
            log.warning("waiting for MLflow, which is unreachable: %s", str(error).splitlines()[0])
            time.sleep(5.0)
        else:
            return True

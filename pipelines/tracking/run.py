"""An MLflow run while it is under way: alive meanwhile, and ended as what happened."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.tracking.client import connect, reaching
from pipelines.tracking.liveness import beating
from pipelines.tracking.sender import Sender

log = logging.getLogger(__name__)

Status = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class Run:
    client: MlflowClient
    uri: str
    run_id: str

    def tag(self, tags: Mapping[str, str]) -> None:
        with reaching(self.uri):
            for name, value in tags.items():
                self.client.set_tag(self.run_id, name, value)

    def send(self, points: list[Any], seconds: float = 60.0) -> None:
        """Send what a `Sender` had left. Raises TrackingError if that takes longer."""
        if points:
            sender = Sender(self.uri, self.run_id, every_seconds=1.0)
            sender.resend(points)
            if left := sender.close(seconds):
                raise TrackingError(f"{self.uri} has not taken {len(left)} points of run {self.run_id}; the same command sends them")

    def end(self, status: Status) -> None:
        """Set the run's status, unless MLflow is away: then the next command corrects it, and training matters more."""
        try:
            self.client.set_terminated(self.run_id, status)
        except MlflowException as error:
            log.warning("run %s could not be ended as %s: %s", self.run_id, status, str(error).splitlines()[0])


@contextmanager
def under_way(run: Run) -> Iterator[None]:
    """Keep the run alive meanwhile. It ends as FINISHED, as FAILED on an exception, as KILLED on an interrupt."""
    try:
        with beating(run.client, run.run_id):
            yield
    except (KeyboardInterrupt, SystemExit):
        run.end("KILLED")
        raise
    except BaseException:
        run.end("FAILED")
        raise
    run.end("FINISHED")


def answers(uri: str, seconds: float) -> bool:
    """Whether MLflow answers, now or within so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connect(uri).search_experiments(max_results=1)
        except MlflowException as error:
            if time.monotonic() > deadline:
                return False
            log.warning("waiting for MLflow, which is away: %s", str(error).splitlines()[0])
            time.sleep(5.0)
        else:
            return True

"""An MLflow run while it is under way: alive meanwhile, and ended as what happened."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipelines.errors import TrackingError
from pipelines.interrupts import Deferred, done, received
from pipelines.tracking.client import connect, reaching
from pipelines.tracking.liveness import beating
from pipelines.tracking.sender import Sender

log = logging.getLogger(__name__)

KIND = "lockstep.kind"
"""The tag of runs that are no training."""
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


OneRun = TypeVar("OneRun", bound=Run)


@contextmanager
def under_way(begin: Callable[[], OneRun]) -> Iterator[OneRun]:
    """Begin a run and keep it alive meanwhile. It ends as FINISHED, as KILLED on SIGINT and SIGTERM, as FAILED on another
    exception: a signal waits where it would come between a run's begin and what ends it."""
    with Deferred() as signals:
        run = begin()
        try:
            with beating(run.client, run.run_id), signals.admitted():
                yield run
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit) or received() is not None
            run.end("KILLED" if interrupted else "FAILED")
            raise
        run.end("FINISHED")
        signals.forget()
        done()


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

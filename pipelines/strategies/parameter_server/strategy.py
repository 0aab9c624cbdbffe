"""Strategy `parameter_server` as the loop sees it: its servers, its loader, and its points of consistency."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pipelines.config.train import Train
from pipelines.data.versions.versions import Version
from pipelines.strategies.parameter_server.check import check_servers
from pipelines.strategies.parameter_server.client import Servers
from pipelines.strategies.parameter_server.group import run_servers
from pipelines.strategies.parameter_server.progress import ServerProgress
from pipelines.strategies.parameter_server.streams import Streams
from pipelines.strategies.parameter_server.worker_model import WorkerModel
from pipelines.tasks.base import Task
from pipelines.train.progress import Progress
from pipelines.train.run_context import RunContext


class ParameterServerStrategy(WorkerModel):
    """The loop meets its workers only where all servers are quiescent: there a worker holds what they hold."""

    loader_class = Streams
    saves_every_epoch = True
    """Workers that start again take up the servers as they are, which may be steps after the epoch, but not its validation."""
    _servers: Sequence[Any] = ()
    _progress: ServerProgress

    @classmethod
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        check_servers(settings, task)

    @classmethod
    @contextmanager
    def actors(cls, settings: Train) -> Iterator[Sequence[Any]]:
        with run_servers(settings) as servers:
            yield servers

    def connect(self, actors: Sequence[Any]) -> None:
        self._servers = actors

    def begin(self, run: RunContext) -> None:
        self._progress = ServerProgress(self, Servers(self._servers, run.settings.timeout_seconds), run)
        self._progress.begin()

    def progress(self, run: RunContext) -> Iterator[Progress]:
        """Let this worker pull, compute and push, until the servers are quiescent. Steps are counted on rank 0, while workers go on."""
        return self._progress.points()

    def metrics(self) -> dict[str, float]:
        return self._progress.metrics()

"""Strategy `parameter_server`: its servers, its loader and its points of consistency, as the loop sees them."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import ray
import torch

from pipelines.config.train.train import Train
from pipelines.data.versions.versions import Version
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.strategies.parameter_server.messages import blocks
from pipelines.strategies.parameter_server.server_actors import ServerActor, Servers
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.strategies.parameter_server.worker_loop import Streams, WorkerLoop
from pipelines.strategies.parameter_server.worker_model import WorkerModel
from pipelines.tasks.base import Task
from pipelines.train.fine_tuning import freeze
from pipelines.train.initial_model import meta_model
from pipelines.train.run_context import RunContext
from pipelines.train.strategy import ConsistentPoint

log = logging.getLogger(__name__)


class ParameterServerStrategy(WorkerModel):
    """The loop meets its workers only where all servers are quiescent: there a worker holds what they hold."""

    loader_class = Streams
    saves_every_epoch = True
    """Workers that start again take up the servers as they are, which may be steps after the epoch, but not its validation."""
    _servers: Sequence[Any] = ()
    _worker_loop: WorkerLoop

    @classmethod
    def check(cls, settings: Train, task: Task, version: Version) -> None:
        """Raise ConfigError for more servers than parts of the model, and for parameters that servers do not hold; say what batch norm
        means if updates are asynchronous."""
        model, servers = meta_model(task), settings.strategy_as(Settings)
        freeze(settings, model)
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        for name, parameter in trained.items():
            if parameter.dtype != torch.float32:
                raise ConfigError(f"{name} is {parameter.dtype}, but strategy parameter_server holds float32; set train.strategy to exact")
        most_servers = blocks([parameter.numel() for parameter in trained.values()])
        if most_servers < servers.servers:
            raise ConfigError(
                f"train.strategy.servers is {servers.servers}, but the model's parameters can only be divided among {most_servers}; "
                "lower it"
            )
        if not servers.is_sync and any(isinstance(module, BatchNorm) for module in model.modules()):
            log.warning(
                "batch norm with mode %s: each microbatch normalises by itself, and moves the statistics by its share of a step",
                servers.mode,
            )

    @classmethod
    @contextmanager
    def actors(cls, settings: Train) -> Iterator[Sequence[Any]]:
        """Start the run's servers, and end them after the block.

        They belong to the driver: if it dies, Ray ends them. A group of workers that starts again finds them as they are.
        """
        strategy = settings.strategy_as(Settings)
        # A server is busy only for a moment of every step: Ray need not reserve a CPU for it.
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
        options["max_concurrency"] = 4 * settings.max_workers + 4
        server: Any = ray.remote(ServerActor)
        names = [f"backup-{uuid4().hex}" if strategy.backups else "" for _ in range(strategy.servers)]
        backups = [server.options(name=name, **options).remote("") for name in names if name]
        servers = [server.options(**options).remote(name) for name in names]
        try:
            yield servers
        finally:
            for actor in [*servers, *backups]:
                ray.kill(actor)

    def connect(self, actors: Sequence[Any]) -> None:
        self._servers = actors

    def begin(self, run: RunContext) -> None:
        self._worker_loop = WorkerLoop(self, Servers(self._servers, run.settings.timeout_seconds), run)
        self._worker_loop.begin()

    def self_paced_steps(self, run: RunContext) -> Iterator[ConsistentPoint]:
        """Let this worker pull, compute and push, until the servers are quiescent. Steps are counted on rank 0, while workers go on."""
        return self._worker_loop.points()

    def metrics(self) -> dict[str, float]:
        return self._worker_loop.metrics()

"""The servers of a run, on the driver: starts them, and ends them with the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import ray
from ray.actor import ActorHandle

from pipelines.config.train import Train
from pipelines.strategies.parameter_server.actor import ServerActor
from pipelines.strategies.parameter_server.settings import Settings


@contextmanager
def run_servers(settings: Train) -> Iterator[list[ActorHandle]]:
    """Start the run's servers, and end them after the block.

    They belong to the driver: if it dies, Ray ends them. A group of workers that starts again finds them as they are.
    """
    servers_settings = settings.strategy_as(Settings)
    # A server is busy only for a moment of every step: Ray need not reserve a CPU for it.
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
    options["max_concurrency"] = 4 * settings.max_workers + 4
    server: Any = ray.remote(ServerActor)
    names = [f"backup-{uuid4().hex}" if servers_settings.backups else "" for _ in range(servers_settings.servers)]
    backups = [server.options(name=name, **options).remote("") for name in names if name]
    servers = [server.options(**options).remote(name) for name in names]
    try:
        yield servers
    finally:
        for actor in [*servers, *backups]:
            ray.kill(actor)

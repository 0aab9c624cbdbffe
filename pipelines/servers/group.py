"""The servers of a run, on the driver: checks that there is a part for each, starts them, and ends them with the run."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import ray
import torch
from ray.actor import ActorHandle

from pipelines.compat.torch import BatchNorm
from pipelines.config.train import Train
from pipelines.errors import ConfigError
from pipelines.parallel.strategies import meta_model
from pipelines.servers.actor import ServerActor
from pipelines.servers.parts import blocks
from pipelines.tasks.base import Task

log = logging.getLogger(__name__)

NAME = "parameter_server"


def check_servers(settings: Train, task: Task) -> None:
    """Raise ConfigError for more servers than parts of the model, and for parameters that servers do not hold; say what batch norm means
    if updates are asynchronous."""
    if settings.strategy != NAME:
        return
    model, mode = meta_model(task), settings.parameter_server.mode
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, parameter in trained.items():
        if parameter.dtype != torch.float32:
            raise ConfigError(f"{name} is {parameter.dtype}, but strategy parameter_server holds float32; set train.strategy to exact")
    most = blocks([parameter.numel() for parameter in trained.values()])
    if most < settings.parameter_server.servers:
        raise ConfigError(
            f"train.parameter_server.servers is {settings.parameter_server.servers}, but the model's parameters can only be divided among "
            f"{most}; lower it"
        )
    if mode != "sync" and any(isinstance(module, BatchNorm) for module in model.modules()):
        log.warning("batch norm with mode %s: each microbatch normalises by itself, and moves the statistics by its share of a step", mode)


@contextmanager
def servers_of(settings: Train) -> Iterator[list[ActorHandle]]:
    """Start the run's servers, and end them after the block; none for another strategy.

    They belong to the driver: if it dies, Ray ends them. A group of workers that starts again finds them as they are.
    """
    if settings.strategy != NAME:
        yield []
        return
    # A server is busy only for a moment of every step: Ray need not reserve a CPU for it.
    options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": "SPREAD"}
    options["max_concurrency"] = 4 * settings.max_workers + 4
    server: Any = ray.remote(ServerActor)
    names = [f"backup-{uuid4().hex}" if settings.parameter_server.backups else "" for _ in range(settings.parameter_server.servers)]
    backups = [server.options(name=name, **options).remote("") for name in names if name]
    servers = [server.options(**options).remote(name) for name in names]
    try:
        yield servers
    finally:
        for actor in [*servers, *backups]:
            ray.kill(actor)

"""Checks, on the driver, that servers can hold the model, and that there is a part for each."""

import logging

import torch

from pipelines.config.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.strategies.parameter_server.parts import blocks
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.tasks.base import Task
from pipelines.train.strategies import meta_model

log = logging.getLogger(__name__)


def check_servers(settings: Train, task: Task) -> None:
    """Raise ConfigError for more servers than parts of the model, and for parameters that servers do not hold; say what batch norm means
    if updates are asynchronous."""
    model, servers = meta_model(task), settings.strategy_as(Settings)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, parameter in trained.items():
        if parameter.dtype != torch.float32:
            raise ConfigError(f"{name} is {parameter.dtype}, but strategy parameter_server holds float32; set train.strategy to exact")
    most_servers = blocks([parameter.numel() for parameter in trained.values()])
    if most_servers < servers.servers:
        raise ConfigError(
            f"train.strategy.servers is {servers.servers}, but the model's parameters can only be divided among {most_servers}; lower it"
        )
    if not servers.is_sync and any(isinstance(module, BatchNorm) for module in model.modules()):
        log.warning(
            "batch norm with mode %s: each microbatch normalises by itself, and moves the statistics by its share of a step", servers.mode
        )

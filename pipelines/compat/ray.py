"""What is needed of Ray's own names."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray._private import ray_constants, services
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution import context
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy, ScalingPolicy

from pipelines.compat import present, replace

__all__ = ["FixedScalingPolicy", "ScalingPolicy", "known_as", "on_loopback", "quiet_reports"]

# Overridden in launch.trainer.
present(TorchTrainer, "_create_default_callbacks", "_initialize_and_run_controller")
present(FixedScalingPolicy, "after_controller_start", "_maybe_send_resource_request")


@contextmanager
def on_loopback() -> Iterator[None]:
    """Has a Ray that is started meanwhile listen to this machine alone instead of its whole network: what
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 does when Ray is imported, which it is already. Whoever starts one checks where it
    listens: the name may stay and mean something else."""
    before = replace(ray_constants, "ENABLE_RAY_CLUSTER", False)
    try:
        yield
    finally:
        replace(ray_constants, "ENABLE_RAY_CLUSTER", before)


def known_as(address: str) -> None:
    """Has Ray's command line, in this process, take `address` for the machine's own."""

    def answer(_: Any = None) -> str:
        return address

    replace(services, "get_node_ip_address", answer)


def quiet_reports() -> None:
    """Keeps a worker of Ray Train from printing a line for every report, under a logger that is named by its file's path."""
    present(context, "logger")
    context.logger.setLevel(logging.WARNING)

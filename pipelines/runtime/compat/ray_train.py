"""Private names of Ray Train."""

import logging
from collections.abc import Callable
from typing import Any

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution import context
from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, FixedScalingPolicy, ScalingPolicy

from pipelines.errors import MismatchError
from pipelines.runtime.compat import is_present, warn_once

__all__ = [
    "ElasticScalingPolicy",
    "FixedScalingPolicy",
    "ScalingPolicy",
    "WorkerGroupStartupTimeoutError",
    "local_controller",
    "quiet_reports",
]

# Overridden in launch.ray_trainer. An override of a name that is gone is never called.
is_present(TorchTrainer, "_create_default_callbacks", instead="Ray Train starts actors that are not needed")
is_present(TorchTrainer, "_initialize_and_run_controller", instead="Ray Train's controller runs in an actor, and no machine is left out")
is_present(FixedScalingPolicy, "after_controller_start", "_maybe_send_resource_request", instead="Ray Train asks for machines once more")
is_present(ElasticScalingPolicy, "_count_possible_workers", instead="no machine is left out")


def quiet_reports() -> None:
    """Stop a worker of Ray Train from logging a line for every report. The logger is named after the path of its file."""
    if is_present(context, "logger", instead="Ray Train logs a line for every report"):
        context.logger.setLevel(logging.WARNING)


def local_controller() -> Callable[..., Any] | None:
    """`run_controller`, which runs Ray Train's controller in this process; None where it leans on a name that is gone."""
    try:
        from pipelines.runtime.compat.ray_controller import run_controller  # noqa: PLC0415  it leans on many names
    except (ImportError, MismatchError) as error:
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "ray":
            raise
        warn_once(f"{str(error).partition(';')[0]}: Ray Train's controller runs in an actor")
        return None
    return run_controller

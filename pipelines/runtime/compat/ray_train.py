"""Private names of Ray Train."""

import logging

from ray.train.torch import TorchTrainer
from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError
from ray.train.v2._internal.execution import context
from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, FixedScalingPolicy, ScalingPolicy

from pipelines.runtime.compat import present

__all__ = ["ElasticScalingPolicy", "FixedScalingPolicy", "ScalingPolicy", "WorkerGroupStartupTimeoutError", "quiet_reports"]

# Overridden in launch.trainer.
present(TorchTrainer, "_create_default_callbacks", "_initialize_and_run_controller")
present(FixedScalingPolicy, "after_controller_start", "_maybe_send_resource_request")
present(ElasticScalingPolicy, "_count_possible_workers")


def quiet_reports() -> None:
    """Stop a worker of Ray Train from logging a line for every report. The logger is named after the path of its file."""
    present(context, "logger")
    context.logger.setLevel(logging.WARNING)

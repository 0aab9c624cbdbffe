"""Tells the driver which workers have died, as soon as Ray's controller knows."""

import logging
import time
from typing import Any

from ray.train import UserCallback

from pipelines.checkpoint.run_directory import DEATHS, RunDirectory
from pipelines.errors import TrainingError

log = logging.getLogger(__name__)

_REASON_LENGTH = 200


class Deaths(UserCallback):
    """Writes the workers of the last failure into the run's directory. Ray calls it in its controller, and restarts the group after
    it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        # A worker that lost the connection to a dead one raises an error of its own, which Ray wraps.
        dead = {rank: error for rank, error in worker_exceptions.items() if not hasattr(error, "_base_exc")} or worker_exceptions
        reasons = {str(rank): _reason(error) for rank, error in sorted(dead.items())}
        try:
            RunDirectory(self._directory).put_json(DEATHS, {"time": time.time(), "workers": reasons}, durable=False)
        except TrainingError as error:  # the restart matters more
            log.warning("%s", error)


def _reason(error: Exception) -> str:
    lines = str(getattr(error, "_base_exc", error)).splitlines()
    return (lines[0] if lines else type(error).__name__)[:_REASON_LENGTH]

"""Tells the driver which workers have died, as soon as Ray's controller knows."""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from ray.train import UserCallback

from pipelines.checkpoint.run_directory import DEATHS, RunDirectory
from pipelines.errors import TrainingError

log = logging.getLogger(__name__)

_REASON_LENGTH = 200
_CONNECTION = re.compile(
    r"[Cc]onnection (closed|reset|refused)|[Bb]roken pipe|[Ss]ocket (closed|error)|remote (process|peer)|NCCL.*(remote|peer)"
)
"""What Gloo and NCCL say in a worker whose peer is gone."""


class Deaths(UserCallback):
    """Writes the workers of the last failure into the run's directory. Ray calls it in its controller, and restarts the group after
    it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        dead, cut_off = sort_out(worker_exceptions)
        values = {"time": time.time(), "workers": {str(rank): _reason(error) for rank, error in dead.items()}, "cut_off": cut_off}
        try:
            RunDirectory(self._directory).put_json(DEATHS, values, durable=False)
        except TrainingError as error:  # the restart matters more
            log.warning("%s", error)


def sort_out(errors: Mapping[int, Exception]) -> tuple[dict[int, Exception], list[int]]:
    """The workers that died or failed by themselves, and the ranks of those that only lost their connection to one of them.

    A worker whose process is gone has an error of Ray's; what a worker raised is wrapped in another. Ray may know of the lost connections
    before it knows of the death: then nobody has died by itself as yet.
    """
    gone = {rank: error for rank, error in sorted(errors.items()) if not hasattr(error, "_base_exc")}
    raised = {rank: error for rank, error in sorted(errors.items()) if rank not in gone}
    cut_off = [rank for rank, error in raised.items() if _CONNECTION.search(str(getattr(error, "_base_exc", error)))]
    return gone or {rank: error for rank, error in raised.items() if rank not in cut_off}, cut_off


def _reason(error: Exception) -> str:
    lines = str(getattr(error, "_base_exc", error)).splitlines()
    return (lines[0] if lines else type(error).__name__)[:_REASON_LENGTH]

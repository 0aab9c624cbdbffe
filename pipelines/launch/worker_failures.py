"""How often Ray starts the workers again after one has died, from the last checkpoint; and which have died, and why, for the driver."""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from ray.train import FailureConfig, UserCallback

from pipelines.config.train.train import Train
from pipelines.errors import TrainingError
from pipelines.runtime.machine import SHARED_MEMORY, SHARED_MEMORY_REMEDY
from pipelines.train.checkpoint.run_directory import DEATHS, RunDirectory

log = logging.getLogger(__name__)

STARTS = 120
"""How many times Ray tries to start a group for which its cluster has no resources yet."""
_REASON_LENGTH = 200
_CONNECTION = re.compile(
    r"[Cc]onnection (closed|reset|refused)|[Bb]roken pipe|[Ss]ocket (closed|error)|remote (process|peer)|NCCL.*(remote|peer)"
)
"""What Gloo and NCCL say in a worker whose peer is gone."""
_NO_SHARED_MEMORY = re.compile(r"creating shared memory segment|No space left on device.*/dev/shm|/dev/shm.*No space left on device")
"""What NCCL and torch say where a container limits it."""
_UNKNOWN_END = "connection error code 2"
"""Ray's words for a process whose connection ended without a word."""


def restart_policy(settings: Train) -> FailureConfig:
    """How often Ray starts the group again from the last checkpoint, after one of its workers has died."""
    return FailureConfig(max_failures=settings.max_failures, controller_failure_limit=STARTS)  # type: ignore[call-arg]


class DeathRecorder(UserCallback):
    """Writes the workers of the last failure into the run's directory. Ray calls it in its controller, before it restarts the group."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        dead, cut_off = separate_deaths(worker_exceptions)
        values = {"time": time.time(), "workers": {str(rank): describe_death(error) for rank, error in dead.items()}, "cut_off": cut_off}
        try:
            RunDirectory(self._directory).put_json(DEATHS, values, durable=False)
        except TrainingError as error:  # the restart matters more
            log.warning("%s", error)


def separate_deaths(errors: Mapping[int, Exception]) -> tuple[dict[int, Exception], list[int]]:
    """Return the workers that died or failed, and the ranks of workers that only lost their connection to one of them.

    Ray may know of the lost connections before it knows of the death: then no worker has died as yet.
    """
    cut_off = [rank for rank, error in sorted(errors.items()) if not _is_gone(error) and _CONNECTION.search(_text(error))]
    failed = {rank: error for rank, error in sorted(errors.items()) if rank not in cut_off}
    dead = {rank: error for rank, error in failed.items() if _is_gone(error)}
    return dead or failed, cut_off


def _is_gone(error: Exception) -> bool:
    """Whether Ray says that the process is gone, instead of what the worker itself raised."""
    return not hasattr(error, "_base_exc") and type(error).__module__.startswith("ray.")


def _text(error: Exception) -> str:
    return str(getattr(error, "_base_exc", error))


def describe_death(error: Exception) -> str:
    """Why a worker ended, in a line; with the signal, where Ray says that its process is gone."""
    text = _text(error)
    lines = text.splitlines()
    reason = (lines[0] if lines else type(error).__name__)[:_REASON_LENGTH]
    if _is_gone(error):  # SIGKILL and a crash look alike to Ray
        unknown = "by SIGKILL, as the kernel sends where memory is full, or by a crash such as SIGSEGV" if _UNKNOWN_END in text else ""
        named = re.search(r"\bSIG[A-Z]{3,}\b", text)
        if signal := unknown or (f"by {named[0]}" if named else ""):
            reason = f"{reason.removesuffix('.')}: {signal}"
    return f"{reason}; {SHARED_MEMORY} is full: {SHARED_MEMORY_REMEDY}" if _NO_SHARED_MEMORY.search(text) else reason

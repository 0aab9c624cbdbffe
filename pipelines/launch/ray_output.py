"""Output of Ray's processes: the driver shows the lines of tasks and our own, and keeps all others for a file of the run.

When a worker dies, Ray and torch print some thirty lines about it: the raylet's advice, tracebacks of every worker that lost its
connection, C++ frames. The driver says the same in one line.
"""

import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from pipelines.train.checkpoint.run_directory import RunDirectory

FILE = "ray.log"
_MOST_LINES = 20_000
_QUIET_SECONDS = 10.0
"""For so long after a hidden line of a process, all that it prints to stderr is part of the same report."""
_RAYS = ("TrainController", "SynchronizationActor", "AutoscalingCoordinator")
"""Ray's actors, which print nothing but reports."""
_REPORT = re.compile(
    r"Traceback \(most recent call last\)|Error in training function|Fatal Python error|terminate called|\*\*\* SIG|\s*frame #\d+"
    r"|\s*@ +0x|\[rank\d+\]:\[[EWF]|\[\w*[EF]\d{4} |\[\d{4}-\d\d-\d\d [\d:,]+ [EF] "
)
"""How a report begins: of Python, of torch's C++, of glog."""


class RayOutput:
    """Sorts the lines that Ray hands to the driver. They come from threads of Ray's."""

    def __init__(self) -> None:
        self._hidden_lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._quiet_until: dict[Any, float] = {}
        self._lock = Lock()

    def hide_reports(self, data: Mapping[str, Any]) -> list[str]:
        """Return the lines to show of a batch, and store all others. `data` is Ray's: `lines`, `pid`, `is_err`, `actor_name`."""
        with self._lock:
            hidden = [self._is_hidden(data, line) for line in data["lines"]]
            origin = f"({data.get('actor_name') or data.get('task_name') or 'ray'} pid={data.get('pid')})"
            self._hidden_lines.extend(f"{origin} {line}" for line, is_hidden in zip(data["lines"], hidden, strict=True) if is_hidden)
        return [line for line, is_hidden in zip(data["lines"], hidden, strict=True) if not is_hidden]

    @contextmanager
    def kept_log(self) -> Iterator[None]:
        """Within the block, store what Ray Train logs in this process instead of printing it: warnings and errors."""
        logger, handler = logging.getLogger("ray.train"), _Reports(self)
        propagates, logger.propagate = logger.propagate, False
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagates

    def write(self, directory: RunDirectory) -> str:
        """Write the hidden lines into the run's directory. Return a line that names the file; empty without hidden lines.

        Raises TrainingError if the store fails.
        """
        with self._lock:
            text = "\n".join(self._hidden_lines)
        if not text:
            return ""
        directory.put(FILE, f"{text}\n".encode())
        with self._lock:
            self._hidden_lines.clear()  # they are not of the next run on this Ray
        return f"what Ray and torch printed about it is in {directory.path}/{FILE}"

    def _is_hidden(self, data: Mapping[str, Any], line: str) -> bool:
        process = data.get("pid")
        if process == "raylet":
            return True
        if not data.get("is_err"):
            return False
        if data.get("actor_name") in _RAYS:
            return True
        now = time.monotonic()
        if now < self._quiet_until.get(process, 0.0) or _REPORT.match(line):
            self._quiet_until[process] = now + _QUIET_SECONDS
            return True
        return False


class _Reports(logging.Handler):
    """Hands the reports of a controller in this process to the output, as if Ray had."""

    def __init__(self, output: RayOutput) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        lines = self.format(record).splitlines()
        self._output.hide_reports({"lines": lines, "pid": os.getpid(), "is_err": True, "actor_name": _RAYS[0]})

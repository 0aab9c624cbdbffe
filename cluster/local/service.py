"""A server that outlives the command that started it: one file has its process id, another one its output."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import psutil
from credentials import write
from pydantic import TypeAdapter, ValidationError
from sessions import end_session, session_pids

START_SECONDS = 120.0
"""Time for a server to answer; a busy machine needs ten times as long as an idle one."""
LAST_WORDS = 2_000


@dataclass(frozen=True)
class ProcessRecord:
    """The contents of a process id's file."""

    process: int
    created: float
    """The process's start time, since process ids are reused."""


_RECORD = TypeAdapter(ProcessRecord)
State = Literal["up", "not answering", "down"]


class NotStartedError(Exception):
    """A server ended or did not answer after it was started; the message has the end of its log."""


@dataclass(frozen=True)
class Service:
    name: str
    address: str
    command: Sequence[str]
    variables: Mapping[str, str]
    """Environment variables, in addition to this process's."""
    healthy: Callable[[], bool]
    folder: Path
    """The folder of `logs/` and `pids/`."""
    stop: signal.Signals = signal.SIGTERM

    @property
    def log(self) -> Path:
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pids" / self.name

    def leader(self) -> int | None:
        """The process id of the server, alive or not; None if it was not started, or if another process has the id now."""
        with suppress(FileNotFoundError):
            try:
                record = _RECORD.validate_json(self._pid_file.read_bytes())
            except ValidationError as error:
                sys.exit(f"{self._pid_file}: {error.errors()[0]['msg']}; end {self.name} if it runs, and remove the file")
            with suppress(psutil.NoSuchProcess):
                if psutil.Process(record.process).create_time() != record.created:
                    return None
            return record.process
        return None

    def state(self) -> State:
        leader = self.leader()
        if leader is None or leader not in session_pids(leader):
            return "down"
        return "up" if self.healthy() else "not answering"

    def start(self) -> None:
        """Start the server, after ending processes of an earlier one."""
        self.end()
        for file in (self.log, self._pid_file):
            file.parent.mkdir(parents=True, exist_ok=True)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SPARK_", "PYSPARK_", "MLFLOW_"))}
        with self.log.open("a", encoding="utf-8") as output:
            started = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**variables, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        write(self._pid_file, json.dumps(asdict(ProcessRecord(started.pid, psutil.Process(started.pid).create_time()))))

    def wait(self) -> None:
        """Wait until the server answers. Raises NotStartedError."""
        deadline = time.monotonic() + START_SECONDS
        while (state := self.state()) != "up":
            if state == "down" or time.monotonic() > deadline:
                why = "ended" if state == "down" else f"did not answer within {START_SECONDS:.0f} s"
                log_end = self.log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:]
                raise NotStartedError(f"{self.name} {why}; the end of {self.log}:\n{log_end}")
            time.sleep(0.3)

    def end(self) -> None:
        """End the server, if it runs, and all processes that it started."""
        if (leader := self.leader()) is not None:
            end_session(leader, self.stop)
        self._pid_file.unlink(missing_ok=True)

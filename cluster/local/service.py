"""A server that outlives the command that started it: one file has its process id, another one its output."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
from credentials import write
from pydantic import TypeAdapter, ValidationError
from sessions import deferred_signals, end_session, session_pids

START_SECONDS = 120.0
"""Time for a server to answer; a busy machine needs ten times as long as an idle one."""
LAST_WORDS = 2_000


@dataclass(frozen=True)
class ProcessRecord:
    """The contents of a process id's file."""

    process: int
    start: str = ""
    """When the process started, by a clock that nobody sets, since process ids are reused."""
    created: float | None = None
    """Its start time, in files of earlier versions; it changes whenever the system's clock is set."""

    def is_of_another_process(self) -> bool:
        """Whether another process has the id now, or may have had it since this one ended: the machine has booted again."""
        if self.start:
            boot = self.start.partition(" ")[0]
            return boot != boot_id() or process_start(self.process) not in (self.start, "")
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process).create_time() != self.created
        return False


def process_start(process: int) -> str:
    """The id of this boot, and the clock tick after it at which the process started; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    after_name = stat.rpartition(")")[2].split()  # a name may contain spaces and parentheses
    return f"{boot_id()} {after_name[19]}"


def boot_id() -> str:
    """Changes when the machine boots; empty in a sandbox that has none."""
    file = Path("/proc/sys/kernel/random/boot_id")
    return file.read_text(encoding="ascii").strip() if file.exists() else ""


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
            return None if record.is_of_another_process() else record.process
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
        # A signal between the start and its record would leave a server that nothing ends.
        with self.log.open("a", encoding="utf-8") as output, deferred_signals():
            started = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**variables, **self.variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                write(self._pid_file, json.dumps({"process": started.pid, "start": process_start(started.pid)}))
            except BaseException:
                end_session(started.pid, signal.SIGKILL)
                raise

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

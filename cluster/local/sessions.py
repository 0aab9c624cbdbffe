"""Runs commands in sessions of their own, so that all processes that they start can be found and ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO

import psutil

STOP_SECONDS = 15.0


@contextmanager
def process(command: Sequence[str], output: IO[str] | None = None, *, stop: signal.Signals) -> Iterator[subprocess.Popen]:
    """Run a command in a new session. At the end of the block, the remaining processes of that session are ended."""
    started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT if output else None, start_new_session=True)
    try:
        yield started
    finally:
        end_session(started.pid, stop)
        started.wait()


def end_session(leader: int, stop: signal.Signals, seconds: float = STOP_SECONDS) -> None:
    """Send `stop` to the session's first process group, and kill what is left when the leader has ended or after `seconds`.

    Also kills processes that were started from it in sessions of their own, as Ray starts the drivers of jobs.
    """
    offspring = started_by(leader)
    with suppress(ProcessLookupError):
        os.killpg(leader, stop)
    deadline = time.monotonic() + seconds
    while leader in of_session(leader) and time.monotonic() < deadline:
        time.sleep(0.1)
    while left := [*of_session(leader), *(child.pid for child in offspring if _lives(child))]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def end_rest_of_session() -> None:
    """Kill all other processes of this process's session."""
    while left := [pid for pid in of_session(os.getsid(0)) if pid != os.getpid()]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def of_session(session: int) -> list[int]:
    """Process ids of a session's living processes; it includes Ray's workers, which have their own process groups."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def started_by(leader: int) -> list[psutil.Process]:
    """Descendants of a session's processes that are outside of the session."""
    below: dict[int, list[psutil.Process]] = {}
    for one in psutil.process_iter(["ppid"]):
        below.setdefault(one.info["ppid"], []).append(one)
    inside = set(of_session(leader))
    found: list[psutil.Process] = []
    look = sorted(inside)
    while look:
        children = below.get(look.pop(), [])
        look += [child.pid for child in children if child.pid not in inside]
        found += [child for child in children if child.pid not in inside]
    return found


def _lives(process: psutil.Process) -> bool:
    """Whether this very process is alive: its id may have been reused."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def leave_on_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP exit through every `finally`. A second signal is ignored, so that they complete."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def leave(number: int, _: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in numbers:
        signal.signal(number, leave)

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
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def process(
    command: Sequence[str],
    output: IO[str] | None = None,
    *,
    stop: signal.Signals,
    stop_seconds: float = STOP_SECONDS,
    errors: int | None = None,
) -> Iterator[subprocess.Popen]:
    """Run a command in a new session. At the end of the block, the remaining processes of that session get `stop`, and `stop_seconds`
    to end. `errors` is a file descriptor for standard error, by default that of this process."""
    started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT if output else errors, start_new_session=True)
    try:
        yield started
    finally:
        end_session(started.pid, stop, stop_seconds)
        started.wait()


def end_session(leader: int, stop: signal.Signals, seconds: float = STOP_SECONDS) -> None:
    """Send `stop` to the session's first process group, and kill the remaining processes when the leader has ended or after `seconds`.

    Also kills processes that were started from it in sessions of their own, as Ray starts the drivers of jobs.
    """
    offspring = offspring_outside(leader)
    with suppress(ProcessLookupError):
        os.killpg(leader, stop)
    deadline = time.monotonic() + seconds
    while leader in session_pids(leader) and time.monotonic() < deadline:
        time.sleep(0.1)
    while remaining := [*session_pids(leader), *(child.pid for child in offspring if _lives(child))]:
        for pid in remaining:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def end_other_processes() -> None:
    """Kill all other processes of this process's session."""
    while remaining := [pid for pid in session_pids(os.getsid(0)) if pid != os.getpid()]:
        for pid in remaining:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def session_pids(session: int) -> list[int]:
    """Process ids of a session's living processes; it includes Ray's workers, which have their own process groups."""
    pids = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                pids.append(process.pid)
    return pids


def offspring_outside(leader: int) -> list[psutil.Process]:
    """Descendants of a session's processes that are outside of the session."""
    below: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        below.setdefault(process.info["ppid"], []).append(process)
    inside = set(session_pids(leader))
    outside: list[psutil.Process] = []
    parents = sorted(inside)
    while parents:
        children = [child for child in below.get(parents.pop(), []) if child.pid not in inside]
        parents += [child.pid for child in children]
        outside += children
    return outside


def _lives(process: psutil.Process) -> bool:
    """Whether this very process is alive: its id may have been reused."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def leave_on_signals() -> None:
    """Make SIGINT, SIGTERM and SIGHUP exit through every `finally`. A second signal is ignored, so that they complete."""

    def leave(number: int, _: FrameType | None) -> None:
        for other in STOP_SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in STOP_SIGNALS:
        signal.signal(number, leave)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Deliver SIGINT, SIGTERM and SIGHUP at the end of the block.

    By handlers, which a command that starts in the block does not inherit; it would inherit a mask of blocked signals.
    """
    waiting: list[int] = []
    before = {number: signal.signal(number, lambda number, _: waiting.append(number)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived in waiting:
            signal.raise_signal(arrived)

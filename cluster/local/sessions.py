"""Processes that end with all that they started: each begins a session, and what is left of a session can be found."""

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
    """Run a command in a session of its own: when the block ends, what is left of that session ends, and nothing else."""
    started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT if output else None, start_new_session=True)
    try:
        yield started
    finally:
        end_session(started.pid, stop)
        started.wait()


def end_session(leader: int, stop: signal.Signals, seconds: float = STOP_SECONDS) -> None:
    """Send `stop` to the session's first process group; what is left when its leader is gone, or after so long, is killed.

    So is what its processes had started in sessions of their own by then, as Ray does with the drivers of jobs.
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
    """Kill what is in this process's session beside itself."""
    while left := [pid for pid in of_session(os.getsid(0)) if pid != os.getpid()]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def of_session(session: int) -> list[int]:
    """Living processes of a session; Ray's workers have process groups of their own in it."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def started_by(leader: int) -> list[psutil.Process]:
    """What the processes of a session have started outside of it, and what those have started."""
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
    """Whether it is this very process still: a number may be given again."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def leave_on_signals() -> None:
    """SIGINT, SIGTERM and SIGHUP leave through every `finally`, once: a second signal must not cut those short."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def leave(number: int, _: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in numbers:
        signal.signal(number, leave)

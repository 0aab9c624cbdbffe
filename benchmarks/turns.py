"""Measures programs that take turns of some seconds: all processes of one are stopped while another one runs.

So a machine whose speed varies over time affects all programs alike, and a ratio compares consecutive turns.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import psutil

Points = list[tuple[float, int]]
"""Pairs of a time, in seconds since 1970, and the number of steps done by then."""
SETTLE_SECONDS = 1.0
"""At the start of a turn, not measured."""
LAST_SECONDS = 10.0
"""Longest wait after the last turn for points that are not written yet."""
WARM_SECONDS = 600.0
"""Longest time from a program's start until it is warm."""


@dataclass(frozen=True)
class Program:
    """A running program, with all processes that it started."""

    root: psutil.Popen
    points: Callable[[], Points]
    log: Path


@contextmanager
def start_program(
    command: Sequence[str], environment: dict[str, str], log: Path, points: Callable[[], Points], warm_up: int
) -> Iterator[Program]:
    """Start the command, and stop it after `warm_up` steps; it is killed at the end of the block. Exits if it ends before."""
    with log.open("w") as file:
        process = psutil.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    program, limit = Program(process, points, log), time.monotonic() + WARM_SECONDS
    try:
        while not any(steps >= warm_up for _, steps in points()):
            if time.monotonic() > limit:
                sys.exit(f"{' '.join(command)}: not warm after {WARM_SECONDS:.0f} s\n{log.read_text()[-4_000:]}")
            _let_run(program, 0.5)
        _send_signal(program, SIGSTOP)
        yield program
    finally:
        _send_signal(program, SIGKILL)
        process.wait()


def _send_signal(program: Program, signal: int) -> None:
    """Send a signal to all processes of a program, in any session: torchrun's workers have their own."""
    if not program.root.is_running():
        return
    for process in [program.root, *program.root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal)


def _let_run(program: Program, seconds: float) -> None:
    """Let a program run for `seconds`. Exits if it ends."""
    time.sleep(seconds)
    if program.root.poll() is not None:
        sys.exit(f"{' '.join(program.root.args)}: exit {program.root.returncode}\n{program.log.read_text()[-4_000:]}")


def rates(programs: Sequence[Program], turns: int, seconds: float) -> list[list[float]]:
    """Steps/s of every program, for each turn in which all of them have two points. Their order is reversed every turn."""
    spans: list[dict[int, tuple[float, float]]] = []
    for number in range(turns):
        order = programs if number % 2 else programs[::-1]
        spans.append({program.root.pid: _turn(program, seconds) for program in order})
    points = [_last(program) for program in programs]
    rates_by_turn = [[rate(history, *span[program.root.pid]) for program, history in zip(programs, points, strict=True)] for span in spans]
    return [[value for value in turn if value is not None] for turn in rates_by_turn if None not in turn]


def _turn(program: Program, seconds: float) -> tuple[float, float]:
    """Let a program run for `seconds`. Returns the start and the end of the measured time."""
    _send_signal(program, SIGCONT)
    start = time.time() + SETTLE_SECONDS
    _let_run(program, SETTLE_SECONDS + seconds)
    end = time.time()
    _send_signal(program, SIGSTOP)
    return start, end


def _last(program: Program) -> Points:
    """All points of a program. They are read while it runs, since a stopped program may hold a lock of its database. It writes
    them in order, so once there is a new one, all earlier ones are there."""
    woken, limit = time.time(), time.monotonic() + LAST_SECONDS
    _send_signal(program, SIGCONT)
    points = program.points()
    while time.monotonic() < limit and not any(at > woken for at, _ in points):
        _let_run(program, 0.2)
        points = program.points()
    _send_signal(program, SIGSTOP)
    return points


def rate(points: Points, start: float, end: float) -> float | None:
    """Steps/s between the first and the last point from `start` to `end`; None if there are fewer than two."""
    inside = [point for point in points if start <= point[0] <= end]
    if len(inside) < 2:
        return None
    (began, before), (ended, after) = inside[0], inside[-1]
    return (after - before) / (ended - began)

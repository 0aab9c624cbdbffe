"""Measuring programs that take turns of some seconds: all processes of one are stopped while another's run, so that a
machine whose speed wanders is the same for all, and a ratio is of turns that follow one another."""

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
"""When, in seconds since 1970, how many steps were done."""
SETTLE_SECONDS = 0.3
"""At the start of a turn, not counted."""
LAST_SECONDS = 10.0
"""After the last turn, for points that are not written yet."""


@dataclass(frozen=True)
class Program:
    """A program that runs, with all that it started."""

    root: psutil.Process
    points: Callable[[], Points]


@contextmanager
def started(
    command: Sequence[str], environment: dict[str, str], log: Path, points: Callable[[], Points], warm_up: int
) -> Iterator[Program]:
    """The command once it has done `warm_up` steps, and stopped there; it is ended on leaving. Exits if it ends before."""
    with log.open("w") as file:
        process = psutil.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        while not any(steps >= warm_up for _, steps in points()):
            if process.poll() is not None:
                sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{log.read_text()[-4_000:]}")
            time.sleep(0.5)
        tell(process, SIGSTOP)
        yield Program(process, points)
    finally:
        tell(process, SIGKILL)
        process.wait()


def tell(root: psutil.Process, signal: int) -> None:
    """Send a signal to a process and to all that it started, in whatever session: torchrun's workers have their own."""
    if not root.is_running():
        return
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal)


def rates(programs: Sequence[Program], turns: int, seconds: float) -> list[list[float]]:
    """Steps/s of every program, for each turn in which all have two points; who goes first changes from turn to turn."""
    spans: list[dict[psutil.Process, tuple[float, float]]] = []
    for number in range(turns):
        order = programs if number % 2 else programs[::-1]
        spans.append({program.root: _turn(program, seconds) for program in order})
    for program in programs:
        _turn(program, LAST_SECONDS)
    found = {program.root: program.points() for program in programs}
    taken = [[rate(found[program.root], *span[program.root]) for program in programs] for span in spans]
    return [[each for each in turn if each is not None] for turn in taken if None not in turn]


def _turn(program: Program, seconds: float) -> tuple[float, float]:
    """Let a program run for so long. Returns the start and the end of what counts."""
    tell(program.root, SIGCONT)
    start = time.time() + SETTLE_SECONDS
    time.sleep(SETTLE_SECONDS + seconds)
    end = time.time()
    tell(program.root, SIGSTOP)
    return start, end


def rate(points: Points, start: float, end: float) -> float | None:
    """Steps/s between the first and the last point from `start` to `end`; None if there are no two."""
    inside = [point for point in points if start <= point[0] <= end]
    if len(inside) < 2:
        return None
    (began, before), (ended, after) = inside[0], inside[-1]
    return (after - before) / (ended - began)

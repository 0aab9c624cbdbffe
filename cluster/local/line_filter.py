"""Holds back what Java and Ray print on every start, and shows it if the command fails."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

ROUTINE = (b"WARNING: Using incubator modules: ",)
"""How lines begin that say nothing about a command."""


class LineFilter:
    """Passes bytes on to standard error, without routine lines. A part of a line is passed on at once, as a progress bar needs it."""

    def __init__(self) -> None:
        self.routine_lines = b""
        self._unsent = b""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes to show."""
        *lines, last = re.split(rb"(?<=\n)", self._unsent + chunk)
        visible = b""
        for line in lines:
            if line.startswith(ROUTINE):
                self.routine_lines += line
            else:
                visible += line
        is_undecided = any(start.startswith(last[: len(start)]) for start in ROUTINE)
        self._unsent = last if is_undecided else b""
        return visible if is_undecided else visible + last

    def remainder(self) -> bytes:
        """The last bytes, if they end in the middle of a line."""
        return self._unsent


@contextmanager
def filtered_errors() -> Iterator[tuple[int, LineFilter]]:
    """A file descriptor for the standard error of a command, whose lines are filtered until the end of the block."""
    if sys.stderr.isatty():  # which a pipe hides from the command
        os.environ.setdefault("LOCKSTEP_TERMINAL", "1")
        os.environ.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    reading, writing = os.pipe()
    lines = LineFilter()
    thread = Thread(target=_forward, args=(reading, lines), daemon=True)
    thread.start()
    try:
        yield writing, lines
    finally:
        os.close(writing)
        thread.join(timeout=10)


def _forward(reading: int, lines: LineFilter) -> None:
    with os.fdopen(reading, "rb", buffering=0) as stream:
        while chunk := stream.read(65_536):
            _show(lines.feed(chunk))
    _show(lines.remainder())


def _show(text: bytes) -> None:
    sys.stderr.flush()
    os.write(sys.stderr.fileno(), text)

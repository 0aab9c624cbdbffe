"""Lines that a process writes for people, without those of libraries that concern nobody."""

import errno
import io
import os
import re
import select
import shutil
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

ROUTINE = (b"WARNING: Using incubator modules: ", b'Setting default log level to "', b"To adjust logging level use sc.setLogLevel")
"""How lines begin that say nothing about a command."""
READER_LEFT = 128 + signal.SIGPIPE
"""Exit code, as a shell shows for a command that SIGPIPE has ended."""


class LineFilter:
    """Passes bytes on to standard error, without routine lines. A part of a line is passed on at once, as a progress bar needs it."""

    def __init__(self) -> None:
        self.routine_lines = b""
        self.remainder = b""
        """The last bytes, if they end in the middle of a line that may be routine."""

    def feed(self, chunk: bytes) -> bytes:
        """The bytes to show."""
        *lines, last = re.split(rb"(?<=\n)", self.remainder + chunk)
        visible = b""
        for line in lines:
            if line.startswith(ROUTINE):
                self.routine_lines += line
            else:
                visible += line
        is_undecided = any(start.startswith(last[: len(start)]) for start in ROUTINE)
        self.remainder = last if is_undecided else b""
        return visible if is_undecided else visible + last


@contextmanager
def filtered_errors() -> Iterator[tuple[int, LineFilter]]:
    """A file descriptor for the standard error of a command, whose lines are filtered until the end of the block."""
    if sys.stderr.isatty():  # which a pipe hides from the command
        os.environ.setdefault("LOCKSTEP_TERMINAL", "1")
        os.environ.setdefault("COLUMNS", str(shutil.get_terminal_size().columns))
    writing, lines, thread = forward_filtered()
    try:
        yield writing, lines
    finally:
        os.close(writing)
        thread.join(timeout=10)


def forward_filtered() -> tuple[int, LineFilter, Thread]:
    """A file descriptor whose lines go on to standard error, filtered, until everybody has closed it; and the thread that does so."""
    reading, writing = os.pipe()
    lines = LineFilter()

    def show(text: bytes) -> None:
        with suppress(OSError, ValueError):  # whoever reads it has left
            sys.stderr.flush()
            os.write(2, text)

    def forward() -> None:
        with os.fdopen(reading, "rb", buffering=0) as stream:
            while chunk := stream.read(65_536):
                show(lines.feed(chunk))
        show(lines.remainder)

    thread = Thread(target=forward, name="filter of errors", daemon=True)
    thread.start()
    return writing, lines, thread


@contextmanager
def exit_when_reader_leaves() -> Iterator[None]:
    """Exit with READER_LEFT, without a traceback, once nobody reads standard output any more, and with 1 and a line if it is full. Other
    broken pipes, and errors of other files, propagate."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not is_reader_gone():
            raise
        # Python flushes standard output once more as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_LEFT)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None or not _is_output_full():
            raise
        print(f"error: standard output takes no more: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _is_output_full() -> bool:
    """Whether standard output takes no byte more: it is /dev/full, or a file on a disk without space."""
    descriptor = sys.stdout.fileno()
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISCHR(mode) or (stat.S_ISREG(mode) and os.fstatvfs(descriptor).f_bavail == 0)


def open_closed_streams() -> None:
    """Give the process the standard streams that it was started without, so that no other file takes their place, and have a character
    that standard output cannot encode escaped."""
    for descriptor in range(3):
        with suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - as long as the process
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def is_reader_gone() -> bool:
    """Whether standard output is a pipe whose other end is closed."""
    with suppress(OSError, ValueError):  # it has no descriptor, or is closed
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False

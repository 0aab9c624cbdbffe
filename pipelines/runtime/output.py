"""Standard output whose reader may leave: `lockstep train --help | head` ends quietly, as other commands do."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

READER_LEFT = 128 + signal.SIGPIPE
"""Exit code, as a shell shows for a command that SIGPIPE has ended."""


@contextmanager
def exit_when_reader_leaves() -> Iterator[None]:
    """Exit with READER_LEFT, without a traceback, once nobody reads standard output any more. Other broken pipes propagate."""
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


def is_reader_gone() -> bool:
    """Whether standard output is a pipe whose other end is closed."""
    with suppress(OSError, ValueError):  # it has no descriptor, or is closed
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False

"""SIGINT and SIGTERM, which ask a process to leave: with 128 + their number, through every `finally`, without a traceback.

1. `leaving` is around all of a job: from there on a signal raises SystemExit wherever the job is.
2. `handled` gives a signal to work that ends in another way, such as workers that save first.
3. `Deferred` is around what must not be cut in two, such as beginning an MLflow run.

A signal may come twice at once: `timeout` sends it to the process and then to the process's group. What comes within
REPEAT_SECONDS of the first is the same; what comes later does not want to wait.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM)
REPEAT_SECONDS = 2.0
Handler = Callable[[int, FrameType | None], Any]


class Taken:
    """The signal that asked first, if one has."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._at = 0.0

    def take(self, number: int) -> bool:
        """Remember it. True for the first one, and for one that comes so much later that it is meant."""
        if self.number is None:
            self.number, self._at = number, time.monotonic()
            return True
        return time.monotonic() - self._at > REPEAT_SECONDS


class _Job(Taken):
    """This process, if it is a job."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work = self.done = False


_job = _Job()


def received() -> int | None:
    """The signal that asked this job to leave, None if there was none. What fails afterwards fails because of it."""
    return _job.number


def note(number: int) -> bool:
    """Remember a signal, and return whether to leave: not if it repeats the first one, nor once the job is done."""
    return _job.take(number) and not _job.done


def _leave(number: int, frame: FrameType | None) -> None:
    if note(number):
        raise SystemExit(128 + number)


def done() -> None:
    """The job has done what it was asked for: it ends by itself now, and a signal no longer makes it fail."""
    _job.done = _job.at_work


@contextmanager
def leaving() -> Iterator[None]:
    """Around all of a job. Whatever is raised after a signal leaves as the signal does; while the interpreter ends, a
    signal ends it at once."""
    _job.at_work = True
    for number in NUMBERS:
        signal.signal(number, _leave)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        number_noted = signal.SIGINT if isinstance(error, KeyboardInterrupt) else _job.number
        if number_noted is None or _job.done:
            raise
        raise SystemExit(128 + number_noted) from error
    finally:
        for number in NUMBERS:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    if note(number):
        os._exit(128 + number)


@contextmanager
def handled(by: Handler) -> Iterator[None]:
    """Give signals to `by` meanwhile. Nothing changes in a thread beside the main one, which is the one that gets them."""
    before = install(dict.fromkeys(NUMBERS, by))
    try:
        yield
    finally:
        install(before)


class Deferred:
    """Signals wait while this `with` block lasts, except where they are `admitted`; at its end they come. A second one does
    not wait."""

    def __init__(self) -> None:
        self._waiting: int | None = None
        self._taken = Taken()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Deferred":
        self._before = install(dict.fromkeys(NUMBERS, self._wait))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        install(self._before)
        if error is None:
            self._come()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Signals come meanwhile, and the one that has waited comes first."""
        install(self._before)
        try:
            self._come()
            yield
        finally:
            install(dict.fromkeys(self._before, self._wait))

    def forget(self) -> None:
        """There is nothing left for a signal to end."""
        self._waiting = None

    def _wait(self, number: int, frame: FrameType | None) -> None:
        is_second = self._waiting is not None
        self._waiting = number
        if self._taken.take(number) and is_second:
            install(self._before)
            self._come()

    def _come(self) -> None:
        waited, self._waiting = self._waiting, None
        if waited is not None:
            signal.raise_signal(waited)


def install(handlers: dict[signal.Signals, Any]) -> dict[signal.Signals, Any]:
    """Set handlers by signal, and return those before; none outside of the main thread."""
    if current_thread() is not main_thread():
        return {}
    return {number: signal.signal(number, handler) for number, handler in handlers.items()}

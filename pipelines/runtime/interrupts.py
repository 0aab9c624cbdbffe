"""Handles SIGINT, SIGTERM and SIGHUP: the process exits with 128 + the signal's number, through every `finally`, without a traceback.

1. `exit_on_signals` surrounds a whole job: in it, a signal raises SystemExit.
2. `handle_signals` surrounds work that ends in another way, such as workers that save first; it passes signals to a handler.
3. `DeferredSignals` surrounds work that must not be interrupted, such as creating an MLflow run.
4. `restored_signals` surrounds a job in a program that goes on after it, such as a notebook.

A signal may arrive twice at once: `timeout` sends it to the process and then to the process group. Within REPEAT_SECONDS of
the first, a second one is a repetition; a later one means that the sender does not want to wait.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer, current_thread, main_thread
from types import FrameType, TracebackType
from typing import Any

from pipelines.runtime.imports import import_modules

NUMBERS = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else ()))
"""A terminal that closes sends SIGHUP, which `nohup` has a command ignore."""
REPEAT_SECONDS = 2.0
_AGAIN_SECONDS = 0.02
"""Until a signal that was lost is sent again."""
_NUMBER_BY_CODE: dict[Any, signal.Signals] = {**{128 + number: number for number in NUMBERS}, int(signal.SIGTERM): signal.SIGTERM}
"""The signal that a process leaves for, by its exit code. Ray's handler of SIGTERM exits with the number itself."""
Handler = Callable[[int, FrameType | None], Any]


class FirstSignal:
    """The first signal that arrived, if one has."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._at = 0.0

    def take(self, number: int) -> bool:
        """Remember a signal. Returns True for the first one, and for a later one that is not a repetition."""
        if self.number is None:
            self.number, self._at = number, time.monotonic()
            return True
        return time.monotonic() - self._at > REPEAT_SECONDS

    def forget(self) -> None:
        self.number, self._at = None, 0.0


class _Job(FirstSignal):
    """The state of this process's job, if it runs one."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work = self.ends_by_itself = False


_job = _Job()


def first_signal() -> int | None:
    """The first signal that this job received, or None. An error after it is taken to be a consequence of it."""
    return _job.number


def record_signal(number: int) -> bool:
    """Remember a signal, and return whether to exit: not if it is a repetition, nor if the job is done."""
    return _job.take(number) and not _job.ends_by_itself


def _leave(number: int, frame: FrameType | None) -> None:
    if record_signal(number):
        raise SystemExit(128 + number)


def mark_done() -> None:
    """Mark the job as done: it is about to end by itself, and a signal no longer makes it fail."""
    _job.ends_by_itself = _job.at_work


def is_done() -> bool:
    """Whether the job is about to end by itself."""
    return _job.ends_by_itself


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Around a whole job. An exception after a signal exits with the signal's code. After the block, while the interpreter
    shuts down, a signal ends the process at once."""
    _job.at_work = True
    for number in NUMBERS:
        signal.signal(number, _leave)
    try:
        with _lost_signals_sent_again():
            yield
    except (Exception, KeyboardInterrupt) as error:
        number_noted = signal.SIGINT if isinstance(error, KeyboardInterrupt) else _job.number
        if number_noted is None or _job.ends_by_itself:
            raise
        raise SystemExit(128 + number_noted) from error
    finally:
        for number in NUMBERS:
            signal.signal(number, _end)


@contextmanager
def _lost_signals_sent_again() -> Iterator[None]:
    """Python ignores an exception in `__del__`, in a callback of a weak reference and in a hook of `fork`. In this block, if it is that of
    a signal, the signal is sent again, when Python is likely to have left that place."""
    before = sys.unraisablehook

    def send_again(lost: Any) -> None:
        code = lost.exc_value.code if isinstance(lost.exc_value, SystemExit) else None
        number = _NUMBER_BY_CODE.get(code)
        if number is None:
            before(lost)
            return
        _job.forget()
        timer = Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), number))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = before


def _end(number: int, frame: FrameType | None) -> None:
    if record_signal(number):
        os._exit(128 + number)


def is_not_caused_by_signal(record: logging.LogRecord) -> bool:
    """A filter of log records: False for a traceback that the SystemExit of a signal has caused.

    SQLAlchemy logs one if a signal arrives during a query. The exception still ends the process, so the exit code tells of the signal.
    """
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is None


@contextmanager
def handle_signals(by: Handler) -> Iterator[None]:
    """Pass signals to `by` in this block. It has no effect outside of the main thread, which alone receives signals."""
    before = install(dict.fromkeys(NUMBERS, by))
    try:
        yield
    finally:
        install(before)


class DeferredSignals:
    """Defers signals to the end of the `with` block, except where they are `admitted`. A second signal is not deferred."""

    def __init__(self) -> None:
        self._waiting: int | None = None
        self._first_signal = FirstSignal()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "DeferredSignals":
        self._before = install(dict.fromkeys(NUMBERS, self._wait))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        install(self._before)
        if error is None:
            self._deliver()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Deliver signals in this block, first of all the deferred one."""
        install(self._before)
        try:
            self._deliver()
            yield
        finally:
            install(dict.fromkeys(self._before, self._wait))

    def forget(self) -> None:
        """Drop the deferred signal, since there is nothing left for it to end."""
        self._waiting = None

    def _wait(self, number: int, frame: FrameType | None) -> None:
        is_second = self._waiting is not None
        self._waiting = number
        if self._first_signal.take(number) and is_second:
            install(self._before)
            self._deliver()

    def _deliver(self) -> None:
        waited, self._waiting = self._waiting, None
        if waited is not None:
            signal.raise_signal(waited)


@contextmanager
def restored_signals(*modules: str) -> Iterator[None]:
    """Around a job in a program that goes on after it: SIGINT ends the job as KeyboardInterrupt, as it ends any other of the program's
    work, and after the job, the program's own handlers are set again, and the signal is forgotten.

    The modules that the job needs are imported first, with signals deferred: an interrupted import of torch cannot be repeated. In a
    command, which ends with its job, signals are as ever."""
    if _job.at_work:
        import_modules(modules)
        yield
        return
    with DeferredSignals():
        import_modules(modules)
    before = {number: handler for number in NUMBERS if (handler := signal.getsignal(number)) is not None}
    _job.forget()
    try:
        yield
    except SystemExit as error:
        if error.code != 128 + signal.SIGINT:
            raise
        raise KeyboardInterrupt from None
    finally:
        install(before)
        _job.forget()


def install(handlers: dict[signal.Signals, Any]) -> dict[signal.Signals, Any]:
    """Set handlers by signal, and return the old ones; none outside of the main thread, or for a handler that is not of Python."""
    if current_thread() is not main_thread():
        return {}
    return {number: signal.signal(number, handler) for number, handler in handlers.items() if signal.getsignal(number) is not None}

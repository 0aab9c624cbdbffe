"""Starts Spark's context in a thread, while the main thread imports what the job needs: Java takes seconds for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from pipelines.runtime.compat.spark import has_context
from pipelines.runtime.interrupts import DeferredSignals
from pipelines.spark.cancellation import JobCancellation
from pipelines.spark.context import start_context

_END_SECONDS = 20.0
"""The longest wait for the thread of a job that fails first. An end in the middle of a start would make Java print errors."""


class EarlyStart:
    """The thread of this process that starts Spark, if there is one."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: Exception | None = None

    def begin(self, name: str, worker_modules: tuple[str, ...]) -> None:
        self._error = None
        self._thread = Thread(target=self._start, args=(name, worker_modules), name="early start", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the thread. A signal is deferred until then, a second one is not. Raises the error of the start."""
        if self._thread is None:
            return
        with DeferredSignals():
            self._thread.join()
        if error := self._error:
            self._error = None
            raise error

    def end(self) -> None:
        """Wait for the thread, for at most _END_SECONDS; the job has an error of its own, or the context."""
        if self._thread is not None:
            with DeferredSignals():
                self._thread.join(_END_SECONDS)
            self._thread = None

    def _start(self, name: str, worker_modules: tuple[str, ...]) -> None:
        try:
            start_context(name, worker_modules)
        except Exception as error:  # the main thread raises it
            self._error = error


early_start = EarlyStart()
"""A process has one context."""


@contextmanager
def started_early(name: str, *worker_modules: str) -> Iterator[None]:
    """Around a job that calls `session`: Spark starts at once, unless it runs already."""
    if has_context():
        yield
        return
    JobCancellation().install()  # Python may free objects of the thread's calls anywhere in this one, where no signal may raise
    early_start.begin(name, worker_modules)
    try:
        yield
    finally:
        early_start.end()

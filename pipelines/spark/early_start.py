"""Starts Spark in a thread, while the main thread imports what the job needs: Java takes seconds for it, and Python workers one."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.runtime.compat.spark import has_context
from pipelines.runtime.environment import is_local
from pipelines.runtime.interrupts import DeferredSignals
from pipelines.spark.context import start_context
from pipelines.spark.job_endings import JobCancellation

_END_SECONDS = 20.0
"""The longest wait for the thread of a job that fails first. An end in the middle of a start would make Java print errors."""


class EarlyStart:
    """The thread of this process that starts Spark, if there is one."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: Exception | None = None
        self._has_started = Event()

    def begin(self, name: str, worker_modules: tuple[str, ...]) -> None:
        self._error = None
        self._has_started.clear()
        self._thread = Thread(target=self._start, args=(name, worker_modules), name="early start", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the session is there. A signal is deferred until then, a second one is not. Raises the error of the start."""
        if self._thread is None:
            return
        with DeferredSignals():
            self._has_started.wait()
        if error := self._error:
            self._error = None
            raise error

    def end(self) -> None:
        """Wait for the thread, for at most _END_SECONDS; the job has an error of its own, or the session."""
        if self._thread is not None:
            with DeferredSignals():
                self._thread.join(_END_SECONDS)
            self._thread = None

    def _start(self, name: str, worker_modules: tuple[str, ...]) -> None:
        try:
            context = start_context(name, worker_modules)
            session = SparkSession.builder.appName(name).getOrCreate()
        except Exception as error:  # the main thread raises it
            self._error = error
            return
        finally:
            self._has_started.set()
        if is_local(str(context.master)):
            with suppress(PySparkException, Py4JError, OSError):  # the job's own tasks raise what is wrong with workers
                session.range(1).mapInArrow(_keep, "id long").collect()


def _keep(batches: Iterator[Any]) -> Iterator[Any]:
    """The work of a task that only has Java start its Python workers, which import their modules."""
    return batches


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

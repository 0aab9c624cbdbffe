"""Starts Spark in a thread, while the main thread imports what the job needs; then a first Python worker, while Spark analyses the query.

Java takes seconds to start a context, and again to start the first Python worker. The thread ends with the first worker's task.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.runtime.compat.spark import has_context
from pipelines.runtime.interrupts import DeferredSignals
from pipelines.runtime.spark_master import is_local
from pipelines.spark.context import start_context

_END_SECONDS = 20.0
"""The longest wait for the thread at the end of the job. An end in the middle of a start would make Java print errors."""


class EarlyStart:
    """The thread of this process that starts Spark, if there is one."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._is_over = Event()
        self._error: Exception | None = None

    def begin(self, name: str, worker_modules: tuple[str, ...]) -> None:
        self._is_over, self._error = Event(), None
        self._thread = Thread(target=self._start, args=(name, worker_modules), name="early start", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the context has started. A signal is deferred until then, a second one is not. Raises the error of the start."""
        if self._thread is None:
            return
        with DeferredSignals():
            self._is_over.wait()
        if error := self._error:
            self._error = None
            raise error

    def end(self) -> None:
        """Wait for the thread, for at most _END_SECONDS."""
        if self._thread is not None:
            with DeferredSignals():
                self._thread.join(_END_SECONDS)
            self._thread = None

    def _start(self, name: str, worker_modules: tuple[str, ...]) -> None:
        try:
            context = start_context(name, worker_modules)
            spark = SparkSession.builder.appName(name).getOrCreate()
        except Exception as error:  # the main thread raises it
            self._error = error
            return
        finally:
            self._is_over.set()
        if is_local(str(context.master)):
            with suppress(Py4JError, PySparkException, OSError):  # the job's first task meets the same fault, and tells of it
                spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()


early_start = EarlyStart()
"""A process has one context."""


@contextmanager
def started_early(name: str, *worker_modules: str) -> Iterator[None]:
    """Around a job that calls `session`: Spark starts at once, unless it runs already."""
    if has_context():
        yield
        return
    early_start.begin(name, worker_modules)
    try:
        yield
    finally:
        early_start.end()

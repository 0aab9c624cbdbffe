"""How a Spark job leaves on SIGINT and SIGTERM: its tasks are cancelled, and it goes as an exception does, undoing its files.

A call to Spark that is broken off leaves its answer behind, which the next call would take for its own. So a signal that
comes amid a call waits for the answer: a thread cancels what Spark does, and sends the signal again until the call is over.
"""

import logging
import os
import signal
import sys
from contextlib import suppress
from socketserver import BaseServer
from threading import Event, Thread, main_thread
from types import FrameType
from typing import Any

import psutil
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pipelines.interrupts import NUMBERS, install, note, received

_AGAIN_SECONDS = 0.3
_printed = BaseServer.handle_error


class Leaving:
    """The handler of both signals, once it is installed."""

    def __init__(self) -> None:
        self.spark: SparkSession | None = None
        """Whose tasks are cancelled."""
        self._sent_by_thread, self._left = Event(), Event()

    def install(self) -> None:
        install(dict.fromkeys(NUMBERS, self._take))

    def _take(self, number: int, frame: FrameType | None) -> None:
        """Raises SystemExit, now or as soon as Spark has answered; the second signal does not wait for that."""
        by_thread = self._sent_by_thread.is_set()
        self._sent_by_thread.clear()
        is_first = received() is None
        is_meant = not by_thread and note(number)
        if is_first and is_meant:
            Thread(target=self._cancel, args=(number,), name="leave", daemon=True).start()
        is_later = not (is_first or by_thread)
        may_leave = is_meant if is_later else not (_amid_call(frame) or self._left.is_set())
        if may_leave:
            self._left.set()
            raise SystemExit(128 + number)

    def _cancel(self, number: int) -> None:
        main = main_thread().ident
        assert main is not None
        while not self._left.wait(_AGAIN_SECONDS):
            _kill_workers()
            with suppress(Py4JError, OSError):
                if self.spark is not None:
                    self.spark.sparkContext.cancelAllJobs()
            if not self._sent_by_thread.is_set():  # else it waits for what must not be cut in two, such as removing files
                self._sent_by_thread.set()
                signal.pthread_kill(main, number)


def without_broken_connections() -> None:
    """Keep PySpark and Py4J from printing a traceback when Java goes first, as it may on a signal to the whole process group.

    What Py4J logs it also raises, so nothing is lost. It logs through its own loggers and through the root logger.
    """

    def handle_error(server: BaseServer, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            _printed(server, request, client_address)

    BaseServer.handle_error = handle_error  # type: ignore[assignment, method-assign]
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], Py4JError))


def _kill_workers() -> None:
    """Spark's Python processes of this machine, which would each print a traceback when their task is cancelled."""
    job = psutil.Process()
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    with suppress(psutil.Error):
        for process in ((under_submit and job.parent()) or job).children(recursive=True):
            with suppress(psutil.Error):
                if "pyspark.daemon" in process.cmdline():
                    process.kill()


def _amid_call(frame: FrameType | None) -> bool:
    while frame is not None:
        if "py4j" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False

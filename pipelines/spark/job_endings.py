"""Ends a Spark job on SIGINT and SIGTERM: cancels its tasks, then raises SystemExit, so that `finally` blocks remove its files. And turns
the end of Spark's Java driver into an exit code or an error: it received a signal, or it died.

An interrupted call to Spark leaves its answer in the socket, where the next call would read it. So a signal that arrives during a
call waits for the answer: a thread cancels Spark's jobs, and sends the signal again until the call has returned.
"""

import logging
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseServer
from threading import Event, Thread, main_thread
from types import FrameType
from typing import Any
from uuid import uuid4

import psutil
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from pipelines.errors import DatasetError
from pipelines.runtime.compat.spark import context_is_stopped, write_signals
from pipelines.runtime.environment import is_local
from pipelines.runtime.interrupts import NUMBERS, first_signal, install, is_done, record_signal
from pipelines.runtime.machine import java, memory

DAEMON_SETTING = "spark.python.daemon.module"
WORKER = "pyspark.worker"
"""An argument of all of Spark's Python processes."""
JOB_MARK = {"LOCKSTEP_SPARK_JOB": uuid4().hex}
"""Variables of this job's Python processes. They tell them from those of other jobs, also after Java, their parent, has ended."""
_AGAIN_SECONDS, _END_SECONDS = 0.3, 10.0
_print_error = BaseServer.handle_error


class JobCancellation:
    """The handler of both signals."""

    def __init__(self) -> None:
        self.spark: SparkSession | None = None
        """The session whose jobs are cancelled."""
        self._sent_by_thread, self._has_left = Event(), Event()

    def install(self) -> None:
        install(dict.fromkeys(NUMBERS, self._take))

    def _take(self, number: int, frame: FrameType | None) -> None:
        """Raises SystemExit, at once or as soon as Spark has answered. A second signal does not wait. Of a job that is done, none counts,
        nor one that had to wait for Spark until the job was done."""
        if is_done():
            self._has_left.set()
            return
        is_by_thread = self._sent_by_thread.is_set()
        self._sent_by_thread.clear()
        is_first = first_signal() is None
        is_meant = not is_by_thread and record_signal(number)
        if is_first and is_meant:
            Thread(target=self._cancel, args=(number,), name="leave", daemon=True).start()
        is_later = not (is_first or is_by_thread)
        may_leave = is_meant if is_later else not (_is_in_call(frame) or self._has_left.is_set())
        if may_leave:
            self._has_left.set()
            raise SystemExit(128 + number)

    def _cancel(self, number: int) -> None:
        main = main_thread().ident
        assert main is not None
        while not self._has_left.wait(_AGAIN_SECONDS):
            if first_signal() is None:  # the job has ended by an error of its cancelled tasks, and its program goes on
                return
            _kill_workers()
            with suppress(Py4JError, OSError):
                if self.spark is not None:
                    self.spark.sparkContext.cancelAllJobs()
            if (
                first_signal() is not None and not self._sent_by_thread.is_set()
            ):  # else the signal is deferred, for example while files are removed
                self._sent_by_thread.set()
                signal.pthread_kill(main, number)


def silence_broken_connections() -> None:
    """Keep PySpark and Py4J from printing a traceback when Java ends first, which can happen on a signal to the whole process group. Py4J
    also raises everything that it logs, so nothing is lost. It logs through its own loggers and the root logger."""

    def handle_error(server: BaseServer, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionError):
            _print_error(server, request, client_address)

    BaseServer.handle_error = handle_error  # type: ignore[assignment, method-assign]
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j_error)


def _is_not_py4j_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], Py4JError))


def quiet_worker_settings(jvm: Any, master: str) -> dict[str, str]:
    """In local mode, where they print to the user's terminal: the setting that keeps cancelled Python workers from printing a traceback."""
    if not is_local(master) or jvm.System.getProperty(DAEMON_SETTING) is not None:
        return {}
    return {DAEMON_SETTING: "pipelines.runtime.compat.spark_daemon"}


def stop_tasks() -> None:
    """Cancel this job's tasks and end their Python processes of this machine, so that none writes files while these are removed. In a
    session that somebody else has started, such as a notebook's, other jobs go on."""
    with suppress(Py4JError, OSError):
        context = session.sparkContext if (session := SparkSession.getActiveSession()) else None
        if context and all(context.environment.get(name) == value for name, value in JOB_MARK.items()):
            context.cancelAllJobs()
    deadline = time.monotonic() + _END_SECONDS
    while (killed := _kill_workers()) and time.monotonic() < deadline:  # again: a task that Spark tried once more starts new ones
        psutil.wait_procs(killed, timeout=_END_SECONDS)


def _kill_workers() -> list[psutil.Process]:
    """Kill Spark's Python processes of this machine: one that computes would go on for seconds after its task is cancelled."""
    killed = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if WORKER in process.cmdline() and JOB_MARK.items() <= process.environ().items():
                process.kill()
                killed.append(process)
    return killed


def _is_in_call(frame: FrameType | None) -> bool:
    while frame is not None:
        if "py4j" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


class Signals:
    """The signals that the Java driver received; it writes them into an unlinked file."""

    def __init__(self) -> None:
        self._file: int | None = None

    def listen(self) -> None:
        """Record signals from now on. Starts the driver's JVM if it does not run yet."""
        if self._file is None:
            self._file, path = tempfile.mkstemp(prefix="lockstep-")
            try:
                write_signals(path)
            finally:
                Path(path).unlink()

    def first(self) -> int | None:
        """The first one that ends a job. Java writes it before it acts on it."""
        lines = b"" if self._file is None else os.pread(self._file, 1_000, 0)
        names = re.findall(r"\bSIGNAL (\w+)", lines.decode())
        return next((number for name in names if (number := getattr(signal, f"SIG{name}", None)) in NUMBERS), None)


java_signals = Signals()
"""The process has one Java driver, which outlives its sessions."""


@contextmanager
def driver_errors() -> Iterator[None]:
    """Around all of a job, and around its MLflow run: after the end of the Java driver, calls to Spark fail in many ways. Raises
    DatasetError if the driver died or did not start, SystemExit if it or this process was asked to leave."""
    try:
        yield
    except Exception as error:
        if first_signal() is None and (sent := java_signals.first()) is not None:
            record_signal(sent)  # only to the Java driver, which is the process of spark-submit
        if (number := first_signal()) is not None:
            raise SystemExit(128 + number) from error
        if isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED":
            fault = java().fault or memory().fault or "for the reason that it printed above; remove it, and run again"
            raise DatasetError(f"Spark's Java driver did not start: {fault}") from error
        more_heap = "set SPARK_DRIVER_MEMORY to more, such as 4g, and run again"
        # No code of this project stops the context during a job.
        if isinstance(error, Py4JNetworkError | ConnectionError) or context_is_stopped():
            raise DatasetError(f"Spark's Java driver has died: killed, or out of memory; {memory().fault or more_heap}") from error
        raise

"""Turns the end of Spark's Java driver into an exit code or an error: it received a signal, or it died."""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from pipelines.errors import DatasetError
from pipelines.runtime.compat.spark import context_is_stopped, write_signals
from pipelines.runtime.interrupts import NUMBERS, first_signal, record_signal
from pipelines.runtime.machine import java, memory

_MORE_HEAP = "set SPARK_DRIVER_MEMORY to more, such as 4g, and run again"


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
    """Around all of a job, and around its MLflow run: after the end of the Java driver, calls to Spark fail in many ways.

    Raises DatasetError if the driver died or did not start, SystemExit if it or this process was asked to leave.
    """
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
        # No code of this project stops the context during a job.
        if isinstance(error, Py4JNetworkError | ConnectionError) or context_is_stopped():
            raise DatasetError(f"Spark's Java driver has died: killed, or out of memory; {memory().fault or _MORE_HEAP}") from error
        raise

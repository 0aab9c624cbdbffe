"""How a job ends when Spark's Java driver has left, because it was asked to or because it died."""

import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from pipelines.compat.spark import context_is_stopped, write_signals
from pipelines.errors import DatasetError
from pipelines.interrupts import NUMBERS, note, received


class Signals:
    """Those that the Java driver was sent, as it writes them into a file that has no name any more."""

    def __init__(self) -> None:
        self._file: int | None = None

    def listen(self) -> None:
        """From now on; the driver's JVM is started if it does not run yet."""
        if self._file is None:
            self._file, path = tempfile.mkstemp(prefix="lockstep-")
            try:
                write_signals(path)
            finally:
                Path(path).unlink()

    def first(self) -> int | None:
        """The first one that asks a job to leave. It is there before anything that Java does about it."""
        written = b"" if self._file is None else os.pread(self._file, 1_000, 0)
        names = re.findall(r"\bSIGNAL (\w+)", written.decode())
        return next((number for name in names if (number := getattr(signal, f"SIG{name}", None)) in NUMBERS), None)


of_java = Signals()
"""The process has one Java driver, which outlives its sessions."""


@contextmanager
def driver_errors() -> Iterator[None]:
    """Around all of a job, and around its MLflow run: once the Java driver is gone, every call to Spark fails in another way.

    Raises DatasetError if the driver died or did not start, SystemExit if it or this process was asked to leave.
    """
    try:
        yield
    except Exception as error:
        if received() is None and (sent := of_java.first()) is not None:
            note(sent)  # to the Java driver alone, which spark-submit is
        if (number := received()) is not None:
            raise SystemExit(128 + number) from error
        if isinstance(error, PySparkRuntimeError) and error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise DatasetError(
                "Spark's Java driver did not start: it needs Java 17 or newer, and memory; see what it printed above"
            ) from error
        # Nothing here stops the context while a job runs.
        if isinstance(error, Py4JNetworkError | ConnectionError) or context_is_stopped():
            raise DatasetError(
                "Spark's Java driver has died: killed, or out of memory; give it more with --driver-memory, and run again"
            ) from error
        raise

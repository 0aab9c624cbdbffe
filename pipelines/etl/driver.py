"""What becomes of a job when Spark's Java driver leaves: because it was asked to, or because it died."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException, PySparkRuntimeError

from pipelines.compat.spark import context_is_stopped
from pipelines.errors import DatasetError
from pipelines.interrupts import note, received


@contextmanager
def driver_errors() -> Iterator[None]:
    """Around all of a job, and around its MLflow run: once the Java driver is gone, every call to Spark fails in another way.

    Raises DatasetError if the driver died or did not start, SystemExit if it or this process was asked to leave.
    """
    try:
        yield
    except Exception as error:
        if (number := _asked_to_leave(error)) is not None:
            raise SystemExit(128 + number) from error
        if isinstance(error, Py4JNetworkError | ConnectionError):
            raise DatasetError(
                "Spark's Java driver has died: killed, or out of memory; give it more with --driver-memory, and run again"
            ) from error
        if isinstance(error, PySparkRuntimeError) and "JAVA_GATEWAY_EXITED" in str(error):
            raise DatasetError(
                "Spark's Java driver did not start: it needs Java 17 or newer, and memory; see what it printed above"
            ) from error
        raise


def _asked_to_leave(error: BaseException) -> int | None:
    """The signal that caused the error, None if none did; SIGTERM if it went to the Java driver alone, as it does to spark-submit."""
    # Nothing but a signal stops the context while a job runs.
    if received() is None and _comes_from_java(error) and context_is_stopped():
        note(signal.SIGTERM)
    return received()


def _comes_from_java(error: BaseException | None) -> bool:
    """Whether the Java driver itself reported the error, or one behind it: a driver that was killed cannot."""
    while error is not None:
        if isinstance(error, PySparkException | Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False

"""Spark's daemon, which forks the Python workers of a machine, without tracebacks of workers that Java has left.

It imports the modules that the job's tasks need, once for all workers.

When a job fails, Spark cancels its other tasks and closes the sockets of their workers. Each prints that its socket is closed,
sometimes after the error that the user should read. Nothing is lost: Spark learns of a worker's failure through the socket.
PySpark has no setting for it. Spark runs this module where `spark.python.daemon.module` names it.
"""

import builtins
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pyspark import daemon

from pipelines.runtime.compat import present, replace
from pipelines.runtime.compat.spark import WORKER_MODULES


def _silence_closed_sockets(write: Callable[..., Any]) -> Callable[..., None]:
    """`write`, except while an exception of a closed socket is handled."""

    def print_unless_closed(*values: Any, **settings: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | EOFError):
            write(*values, **settings)

    return print_unless_closed


def main() -> None:
    for module in os.environ.get(WORKER_MODULES, "").split():
        with suppress(ImportError):  # the task that needs the module raises the error where Spark reports it
            import_module(module)
    present(daemon, "manager")
    replace(daemon, "traceback", SimpleNamespace(print_exc=_silence_closed_sockets(traceback.print_exc), format_exc=traceback.format_exc))
    vars(daemon)["print"] = _silence_closed_sockets(builtins.print)  # before the built-in one
    daemon.manager()


if __name__ == "__main__":
    main()

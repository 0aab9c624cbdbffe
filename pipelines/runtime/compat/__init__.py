"""The private names of libraries that this project uses, although any release may change them. No other package uses any.

1. `haproxy`       adds an option to the configuration that Ray Serve writes for HAProxy.
2. `mlflow`        knows MLflow's scoring server, and makes it read CSV with a model's types. It skips a check of requirements, and
                      has signals wait for the end of database sessions.
   `fastavro`      has it read dates and times as numbers.
   `lightgbm`      has LightGBM print nothing.
   `openpyxl`      knows which part of a workbook a sheet is read from.
   `python`        does what the interpreter does at its end, and frees what tarfile keeps of files that were read.
3. `ray`           makes Ray listen on loopback only, start few daemons, and the processes of workers ahead.
   `ray_controller`  runs Ray Train's controller in the driver.
   `ray_train`     knows the parts of Ray Train that are overridden or turned off.
   `ray_serve`     makes the servers of a replica listen on loopback only.
4. `spark`         gives access to the Java objects behind a session and its data frames.
5. `spark_daemon`  starts Spark's Python workers, without their tracebacks when Java closes their sockets.
6. `torch`         has the base class of all batch norms, a product over many tensors, the memory of PowerSGD, calls after a
                      backward pass, snapshots of memory, and the flight recorder.
   `torch_operators`  makes tensors without values, and tells of operators what runs, and what autograd keeps.
7. `torchmetrics`  imports it without packages that take long and that the project does not use.

To assign or override a name that no longer exists would have no effect. Where safety or a result depends on it, MismatchError is raised.
Where it only saves time or lines, the library's ordinary way is taken, and one line of the log says so.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from pipelines.errors import MismatchError

log = logging.getLogger(__name__)


def present(owner: Any, *names: str) -> None:
    """Raise MismatchError unless a library's module or class has all the names."""
    library = getattr(owner, "__module__", owner.__name__).partition(".")[0]
    for name in names:
        if not hasattr(owner, name):
            raise MismatchError(f"{owner.__name__}.{name} is gone from this version of {library}; install the one in constraints.txt")


def is_present(owner: Any, *names: str, instead: str) -> bool:
    """Whether a library's module or class has all the names. If it has not, the log says once what happens `instead`."""
    try:
        present(owner, *names)
    except MismatchError as error:
        warn_once(f"{str(error).partition(';')[0]}: {instead}")
        return False
    return True


@cache
def warn_once(message: str) -> None:
    """Log the message, unless this process has logged it."""
    log.warning(message)


def attribute(instance: Any, name: str) -> Any:
    """A private attribute of a library's object. Raises MismatchError if it does not exist."""
    if not hasattr(instance, name):
        present(type(instance), name)
    return getattr(instance, name)


def replace(owner: Any, name: str, value: Any) -> Any:
    """Set a library's name to another value, and return the old one. Raises MismatchError if the name does not exist."""
    present(owner, name)
    before = getattr(owner, name)
    setattr(owner, name, value)
    return before


@contextmanager
def replacement(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Within the block, a library's name has another value. Raises MismatchError if the name does not exist."""
    before = replace(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def optional_replacement(owner: Any, name: str, value: Any, instead: str) -> Iterator[None]:
    """As `replacement` where the name exists. Elsewhere nothing is replaced, and the log says once what happens `instead`."""
    if not is_present(owner, name, instead=instead):
        yield
        return
    with replacement(owner, name, value):
        yield

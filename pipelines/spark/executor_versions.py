"""Checks Python and packages of executors on other machines before any work."""

import importlib.util
import platform
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.errors import MismatchError
from pipelines.runtime.installed import disagreement, installed
from pipelines.spark.ambient_settings import check_executor_state

PACKAGES = ("numpy", "pandas", "pyarrow", "pydantic")
_REMEDY = "send an environment with `spark-submit --archives environment.tar.gz#environment`, which cluster/pack.sh makes"


def check_executors(spark: SparkSession) -> None:
    """Raise MismatchError if an executor has another locale or Python, other packages or no `pipelines`. In local mode there is nothing
    to check."""
    if re.match(r"local(\[|$)", str(spark.sparkContext.master)):
        return
    tasks = spark.sparkContext.defaultParallelism
    try:
        told = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(_teller()).collect()
    except Py4JJavaError as error:
        if "PYTHON_VERSION_MISMATCH" in str(error):
            raise MismatchError(f"executors run another Python than the driver; {_REMEDY}") from error
        raise
    here = installed(PACKAGES)
    for host, there, has_pipelines in told:
        if said := disagreement(here, there, f"executor {host}"):
            raise MismatchError(said)
        if not has_pipelines:
            raise MismatchError(f"executor {host} does not find the package pipelines; {_REMEDY}")
    check_executor_state(spark, tasks)


def _teller() -> Callable[[Iterable[int]], Iterator[tuple[str, dict[str, str], bool]]]:
    """A function that is pickled by value. It calls no function of this package, which the executor may not have."""
    names = PACKAGES

    def tell(_: Iterable[int]) -> Iterator[tuple[str, dict[str, str], bool]]:
        found = {"Python": platform.python_version()}
        for name in names:
            try:
                found[name] = version(name)
            except PackageNotFoundError:
                found[name] = "missing"
        yield socket.gethostname(), found, importlib.util.find_spec("pipelines") is not None

    return tell

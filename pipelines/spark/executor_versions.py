"""Checks Python and packages of executors on other machines before any work."""

import importlib.util
import platform
import socket
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.errors import MismatchError
from pipelines.runtime.environment import describe_disagreement, installed_versions
from pipelines.runtime.spark_master import is_local
from pipelines.spark.ambient_settings import check_executor_state

PACKAGES = ("numpy", "pandas", "pyarrow", "pydantic")
_REMEDY = "send an environment with `spark-submit --archives environment.tar.gz#environment`, which cluster/pack.sh makes"


def check_executors(spark: SparkSession, encoding_packages: Iterable[str] = ()) -> None:
    """Raise MismatchError if an executor has another locale or Python, other packages or no `pipelines`. `encoding_packages` are those
    whose versions name the dataset. In local mode there is nothing to check."""
    if is_local(str(spark.sparkContext.master)):
        return
    tasks, packages = spark.sparkContext.defaultParallelism, (*PACKAGES, *sorted(encoding_packages))
    try:
        reports = spark.sparkContext.parallelize(range(tasks), tasks).mapPartitions(_version_reader(packages)).collect()
    except Py4JJavaError as error:
        if "PYTHON_VERSION_MISMATCH" in str(error):
            raise MismatchError(f"executors run another Python than the driver; {_REMEDY}") from error
        raise
    driver_versions = installed_versions(packages)
    for host, executor_versions, has_pipelines in reports:
        if fault := describe_disagreement(driver_versions, executor_versions, f"executor {host}"):
            raise MismatchError(fault)
        if not has_pipelines:
            raise MismatchError(f"executor {host} does not find the package pipelines; {_REMEDY}")
    check_executor_state(spark, tasks)


def _version_reader(names: tuple[str, ...]) -> Callable[[Iterable[int]], Iterator[tuple[str, dict[str, str], bool]]]:
    """A function that is pickled by value. It calls no function of this package, which the executor may not have."""

    def read_versions(_: Iterable[int]) -> Iterator[tuple[str, dict[str, str], bool]]:
        versions = {"Python": platform.python_version()}
        for name in names:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                versions[name] = "missing"
        yield socket.gethostname(), versions, importlib.util.find_spec("pipelines") is not None

    return read_versions

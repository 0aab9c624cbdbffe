"""Fixes what surrounds a session and could decide rows: Spark's SQL settings, the locale, time zone and encoding of its JVMs, and the
environment of its Python workers. What cannot be fixed belongs to the identity of a version, or is refused, as are executors with other
versions of Python and its packages.

Spark uses the JVM's locale to change the case of text that is not ASCII, and its time zone for dates in the calendar of old files.
"""

import importlib.util
import logging
import platform
import re
import socket
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.errors import MismatchError
from pipelines.runtime.compat.spark import jvm
from pipelines.runtime.environment import describe_disagreement, installed_versions, is_local

log = logging.getLogger(__name__)

WORKER_ENVIRONMENT = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "PYTHONHASHSEED": "0", "TZ": "UTC"}
"""For all processes of Spark: executors and Python workers, and the Java driver, which reads file names in it."""
_LOCALES = ("user.{}", "user.{}.format", "user.{}.display")
JAVA_OPTIONS = " ".join(
    [
        *(f"-D{key.format(part)}={value}" for key in _LOCALES for part, value in {"language": "en", "country": "US"}.items()),
        *(f"-D{key.format(part)}=" for key in _LOCALES for part in ("variant", "script")),
        "-Duser.timezone=UTC -Dfile.encoding=UTF-8 -Dstdout.encoding=UTF-8",
    ]
)
"""For executors, whose JVMs start after the session; later options replace earlier ones."""
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
# SQL settings of the user that change no value: they stay as they are.
_HARMLESS = re.compile(
    r"spark\.sql\.(adaptive|artifact|broadcast|catalog|cbo|classic|codegen|connect|debug|event|execution\.(interruptOnCancel|reuseSubquery)"
    r"|hive\.metastore|inMemoryColumnarStorage|optimizer\.(runtime|dynamicPartitionPruning)|queryExecutionListeners|redaction|repl|shuffle"
    r"|sources\.(bucketing|parallelPartitionDiscovery|v2\.bucketing)|statistics|streaming|thriftserver|ui)(\.|$)"
    r"|spark\.sql\.(autoBroadcastJoinThreshold|broadcastTimeout|catalogImplementation|defaultCacheStorageLevel|leafNodeDefaultParallelism"
    r"|max\w+Length|maxBroadcastTableSize|maxSinglePartitionBytes|metadataCacheTTLSeconds|shuffledHashJoinFactor|warehouse\.dir)$"
    r"|spark\.sql\.files\.(maxPartitionBytes|maxPartitionNum|minPartitionNum|openCostInBytes)$"
    r"|spark\.sql\..*\.(InMemoryThreshold|SpillThreshold|buffer\.\w+\.threshold)$",
    re.IGNORECASE,
)
_PLUGINS = ("spark.plugins", "spark.sql.extensions")
"""Code of the user in Spark's planner, or in its operators."""
_JVM_STATE = {
    "locale": "reflect('java.util.Locale', 'getDefault')",
    "time zone": "reflect('java.time.ZoneId', 'systemDefault')",
    "encoding of file names": "reflect('java.lang.System', 'getProperty', 'sun.jnu.encoding')",
    "version": "reflect('java.lang.System', 'getProperty', 'java.specification.version')",
}
_REQUIRED = {"locale": "en_US", "time zone": "UTC", "encoding of file names": "UTF-8"}
PACKAGES = ("numpy", "pandas", "pyarrow", "pydantic")
_REMEDY = "send an environment with `spark-submit --archives environment.tar.gz#environment`, which cluster/pack.sh makes"


def check_python() -> None:
    """Raises MismatchError unless this process's file names are UTF-8, as those of Spark's workers are."""
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8":
        raise MismatchError(f"Python takes file names for {encoding} here, and Spark's workers for UTF-8; set PYTHONUTF8=1, and run again")


def executor_settings(java: Any, master: str) -> dict[str, str]:
    """Settings of a new context: the environment of workers, and on a cluster the options of the executors' JVMs."""
    settings = {f"spark.executorEnv.{name}": value for name, value in WORKER_ENVIRONMENT.items()}
    if not is_local(master):
        user_options = str(java.System.getProperty(_EXECUTOR_OPTIONS) or "")
        settings[_EXECUTOR_OPTIONS] = f"{user_options} {JAVA_OPTIONS}".strip()
    return settings


def fix_driver() -> None:
    """Set the locale and the time zone of the driver's JVM, which spark-submit may have started long before."""
    util = jvm().java.util
    util.Locale.setDefault(util.Locale.US)
    util.TimeZone.setDefault(util.TimeZone.getTimeZone("UTC"))


def fix_settings(spark: SparkSession, settings: dict[str, str]) -> None:
    """Set `settings`, and return every other SQL setting that could change a value to Spark's default."""
    resettable = [key for key in spark.conf.getAll if key.startswith("spark.sql.") and key not in settings and not _HARMLESS.match(key)]
    reset = sorted(key for key in resettable if spark.conf.isModifiable(key))
    for key in reset:
        spark.conf.unset(key)
    if reset:
        log.info("not taken from Spark's configuration, since they could change rows: %s", ", ".join(reset))
    for key, value in settings.items():
        spark.conf.set(key, value)


def ambient_identity(spark: SparkSession) -> dict[str, str]:
    """Versions and settings that decide values too: libraries that know Unicode, and what cannot be set in a running Spark."""
    settings = {key: value for key, value in spark.conf.getAll.items() if key.startswith("spark.sql.") and not _HARMLESS.match(key)}
    unchangeable = {key: value for key, value in settings.items() if key in _PLUGINS or not spark.conf.isModifiable(key)}
    unchangeable |= {key: value for key in _PLUGINS if (value := spark.sparkContext.getConf().get(key, ""))}
    return {**unchangeable, "java": java_version(), "arrow": version("pyarrow").partition(".")[0], "unicode": unicodedata.unidata_version}


def check_executor_state(spark: SparkSession, tasks: int) -> None:
    """Raises MismatchError unless the executors' JVMs have the driver's version, and the locale, time zone and encoding of JAVA_OPTIONS."""
    columns = [f"CAST({text} AS string) AS `{name}`" for name, text in _JVM_STATE.items()]
    for row in spark.range(0, tasks, 1, tasks).selectExpr(*columns).distinct().collect():
        for name, required in {**_REQUIRED, "version": java_version()}.items():
            if row[name] != required:
                remedy = "run driver and executors on the same Java"
                if name != "version":
                    remedy = (
                        "take _JAVA_OPTIONS out of their environment, and start Spark with spark.executorEnv.LC_ALL=C.UTF-8 and "
                        f'{_EXECUTOR_OPTIONS}="{JAVA_OPTIONS}"'
                    )
                raise MismatchError(f"the Java of an executor has the {name} {row[name]}, and {required} is needed; {remedy}")


def java_version() -> str:
    """Java 19 writes some floating point numbers shorter than Java 17 does, and each version knows another Unicode."""
    return str(jvm().System.getProperty("java.specification.version"))


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

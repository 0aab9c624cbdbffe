"""Starts Spark's context, which a process has once: its Java, its master, what it tells the workers, what Java prints, and what keeps it
private: the addresses Spark listens on, the settings that its UI shows, and the files that it spills.

Under spark-submit the JVM starts before any code of ours, too early for environment variables: Spark's UI listens on
SPARK_LOCAL_IP, or everywhere. Settings still work, since the context reads them when the session starts it.
"""

import logging
import os
import re
import sys
import tempfile
import warnings
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

import pipelines
from pipelines.runtime.compat.spark import WORKER_MODULES, has_context, jvm
from pipelines.runtime.environment import environment, is_local
from pipelines.spark.ambient_settings import WORKER_ENVIRONMENT, check_python, executor_settings, fix_driver
from pipelines.spark.java_options import set_java_options
from pipelines.spark.job_endings import JOB_MARK, java_signals, quiet_worker_settings, silence_broken_connections

TRIES = 4
"""Attempts at a task before the job fails, as on a cluster; Spark's default in local mode is one."""
# They print the stack of every failed task, or of every file on a full disk; the driver also receives these as exceptions. So does
# TaskContextImpl: a task that a signal cancels finds no blocks of broadcasts any more, as Java has removed them. CodeGenerator prints the
# code of an expression that is too large for a method of Java's, 64 KB; Spark then interprets it.
TALKATIVE = (
    "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator",
    "org.apache.spark.TaskContextImpl",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.storage.DiskBlockObjectWriter",
)
NETLIB = "dev.ludovic.netlib"
JAVA_LOGGERS: list[object] = []
"""Loggers of Java, which loses the level of a logger without references."""
LOOPBACK = "127.0.0.1"
REDACTED = (
    r"(?i)secret|passw(or)?d|token|credential|(access|account|private|api)[._-]?key"  # names, including those of Spark's own pattern
    r"|://[^/@\s]*:[^/@\s]+@"  # a URL with a login
)
"""Spark redacts settings whose name or value matches, in its UI and logs."""


def start_context(name: str, worker_modules: tuple[str, ...] = ()) -> SparkContext:
    """The running context, or a new one: on the master that spark-submit names, else on all cores of this machine.

    Python workers use this interpreter, unless PYSPARK_PYTHON is set (the system's Python lacks pyarrow), and search for this package where
    this process found it. Those of this machine have imported `worker_modules` when they start."""
    check_python()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    arguments = os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "" if under_submit else "--master local[*] pyspark-shell")
    if "local" in arguments and not under_submit:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    silence_broken_connections()
    set_java_options()
    with environment(WORKER_ENVIRONMENT):  # which the Java driver gives its Python workers
        java_signals.listen()
        fix_driver()
        settings = {} if has_context() else {"spark.app.name": name, **_settings(worker_modules)}
        context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    # Spark prints only errors, and not those that reach the driver as exceptions. netlib reports the absence of native libraries as one.
    context.setLogLevel("ERROR")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    log4j, util = jvm().org.apache.logging.log4j, jvm().java.util.logging
    netlib = util.Logger.getLogger(NETLIB)
    netlib.setLevel(util.Level.OFF)
    JAVA_LOGGERS[:] = [netlib]
    for logger in TALKATIVE:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
    return context


def _settings(worker_modules: tuple[str, ...]) -> dict[str, str]:
    """Settings of a new context: those of workers, and those that follow the configured master, in local mode with retries of tasks."""
    package_folder = str(Path(pipelines.__file__).parents[1])
    python_path = dict.fromkeys([package_folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
    environment = {"PYTHONPATH": os.pathsep.join(python_path), WORKER_MODULES: " ".join(worker_modules), **JOB_MARK}
    java = jvm()
    master = str(java.System.getProperty("spark.master") or "local[*]")
    if cores := re.fullmatch(r"local(?:\[(\d+|\*)\])?", master):
        master = f"local[{cores[1] or 1},{TRIES}]"
    settings = {
        # `stages` replaces Spark's bar, which is drawn even without a terminal.
        "spark.ui.showConsoleProgress": "false",
        # Places of this project's own lines, which Spark would add to its errors, cost several calls of Java for each expression: a tenth
        # of the time in which a table of text is planned.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
        "spark.master": master,
    }
    for settings_of in (private_settings, quiet_worker_settings, executor_settings):
        settings |= settings_of(java, master)
    return settings


def private_settings(java: Any, master: str) -> dict[str, str]:
    """Settings of a new context on that master, except those that the user set. On a cluster only the redaction is set."""
    settings = {"spark.redaction.regex": REDACTED}
    if is_local(master):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        if not _is_loopback(java.System.getenv("SPARK_LOCAL_IP")):
            settings["spark.ui.enabled"] = "false"
        if not java.System.getenv("SPARK_LOCAL_DIRS") and not _is_set(java, "spark.local.dir"):
            # A folder that only this user can enter, for shuffled and spilled data, which Spark makes readable to everyone.
            folder = settings["spark.local.dir"] = tempfile.mkdtemp(prefix="lockstep-spark-")
            java.java.io.File(folder).deleteOnExit()  # by then Spark has removed its own files
    return {key: value for key, value in settings.items() if not _is_set(java, key)}


def _is_set(java: Any, key: str) -> bool:
    """Whether spark-submit or spark-defaults.conf set it."""
    return java.System.getProperty(key) is not None


def _is_loopback(address: str | None) -> bool:
    try:
        return bool(address) and ip_address(str(address)).is_loopback
    except ValueError:
        return address == "localhost"

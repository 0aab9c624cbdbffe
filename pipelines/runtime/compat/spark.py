"""Private names of PySpark: the Java objects behind its Python objects."""

import os
from collections.abc import Iterable, Iterator
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession

from pipelines.runtime.compat import attribute, present
from pipelines.runtime.output import forward_filtered

_STARTING: Any = object()

present(SparkContext, "_active_spark_context", "_ensure_initialized", "_gateway", "_jvm")


WORKER_MODULES = "LOCKSTEP_WORKER_MODULES"
"""The variable that names what `spark_daemon` imports, separated by blanks."""


def jvm() -> Any:
    """The driver's JVM, which is started without a context if it does not run yet, and prints nothing that it prints on every start."""
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        errors, _, thread = forward_filtered()
        try:
            SparkContext._ensure_initialized(gateway=launch_gateway(popen_kwargs={"stderr": errors}))
        except PySparkRuntimeError:
            os.close(errors)
            thread.join(timeout=10)  # an error refers to what Java has printed
            raise
        os.close(errors)
    SparkContext._ensure_initialized()
    return SparkContext._jvm


def has_context() -> bool:
    """Whether this process has started a context, and not stopped it."""
    return SparkContext._active_spark_context is not None


def context_is_stopped() -> bool:
    """Whether the running context is stopping or has stopped, by itself or with its JVM; False where none was started, or is starting."""
    context = SparkContext._active_spark_context
    if context is None:
        return False
    java = getattr(context, "_jsc", _STARTING)  # another thread may start it, and has not set this yet
    if java is _STARTING:
        return False
    try:
        return java is None or bool(java.sc().isStopped())
    except (Py4JError, OSError):
        return True


def condition_of_java(throwable: Any) -> str:
    """The error condition of a Java exception; empty if it is not one of Spark's own."""
    if not is_instance_of(SparkContext._gateway, throwable, "org.apache.spark.SparkThrowable"):
        return ""
    return throwable.getCondition() or ""


def write_signals(path: str) -> None:
    """Make the driver's JVM write each termination signal to a file before it acts on it.

    The logger has its own context, since Spark reconfigures the others while it starts.
    """
    java = jvm()
    log4j, slf4j = java.org.apache.logging.log4j, java.org.apache.logging.slf4j
    layout, file = log4j.core.layout.PatternLayout.createDefaultLayout(), java.java.io.FileOutputStream(path)
    appender = log4j.core.appender.OutputStreamAppender.createAppender(layout, None, file, "file", False, False)
    appender.start()
    settings = log4j.core.config.LoggerConfig("signals", log4j.Level.ERROR, False)
    settings.addAppender(appender, None, None)
    configuration, context = log4j.core.config.NullConfiguration(), log4j.core.LoggerContext("signals")
    configuration.addLogger("signals", settings)
    context.start(configuration)
    logger = slf4j.Log4jLogger(slf4j.Log4jMarkerFactory(), context.getLogger("signals"), "signals")
    java.org.apache.spark.util.SignalUtils.registerLogger(logger)


def sql_parser(spark: SparkSession) -> Any:
    """Spark's SQL parser, which returns unresolved plans."""
    return attribute(spark, "_jsparkSession").sessionState().sqlParser()


def query_execution(rows: DataFrame) -> Any:
    """The plans of a query at each stage of its planning: `analyzed()`, `withCachedData()` and so on."""
    return attribute(rows, "_jdf").queryExecution()


def input_files(rows: DataFrame, paths: Iterable[str]) -> dict[str, str]:
    """The `paths` that Spark lists for these rows, with its names for them. The comparison runs in Java."""
    java, configuration = jvm(), attribute(rows.sparkSession, "_jsparkSession").sessionState().newHadoopConf()
    files = java.scala.Predef.genericWrapArray(attribute(rows, "_jdf").inputFiles()).toSet()
    names = {}
    for path in paths:
        path_in_java = java.org.apache.hadoop.fs.Path(path)
        qualified = path_in_java.getFileSystem(configuration).makeQualified(path_in_java)
        if files.contains(qualified.toUri().toString()):
            names[path] = str(qualified.toString())
    return names


def count_input_files(rows: DataFrame) -> int:
    """The number of files that `inputFiles` would list, which passes every name to Python in a separate call."""
    return len(attribute(rows, "_jdf").inputFiles())


def finished_stages(spark: SparkSession, since: float = 0.0) -> Iterator[tuple[float, dict[str, Any]]]:
    """When each finished stage began, in seconds since 1970, and its numbers: of those that began at `since` or later.

    The REST interface gives the same, but only while Spark's UI runs, which is off where it would not be private.
    """
    store = _status_store(spark)
    halves = SparkContext._gateway.new_array(jvm().double, 2)  # type: ignore[union-attr]
    halves[0], halves[1] = 0.5, 1.0
    lists = jvm().java.util.ArrayList
    stages = store.stageList(lists(), False, False, halves, lists())
    for place in range(stages.size()):
        stage = stages.apply(place)
        if stage.submissionTime().isEmpty() or stage.completionTime().isEmpty():
            continue
        if stage.submissionTime().get().getTime() < since * 1_000:
            continue
        began, ended = (moment.get().getTime() / 1_000 for moment in (stage.submissionTime(), stage.completionTime()))
        tasks = store.taskSummary(stage.stageId(), stage.attemptId(), halves)
        times = tasks.get().executorRunTime() if tasks.isDefined() else None
        yield (
            began,
            {
                "number": stage.stageId(),
                "call": stage.name(),
                "tasks": stage.numTasks(),
                "seconds": ended - began,
                "task_seconds": stage.executorRunTime() / 1_000,
                "median_seconds": times.apply(0) / 1_000 if times else 0.0,
                "longest_seconds": times.apply(1) / 1_000 if times else 0.0,
                "rows_read": stage.inputRecords() + stage.shuffleReadRecords(),
                "spilled_bytes": stage.diskBytesSpilled(),
                "shuffled_bytes": stage.shuffleWriteBytes(),
            },
        )


def rows_read(spark: SparkSession, stages: Iterable[int]) -> int:
    """Rows that the finished tasks of running stages have read from files and from other stages.

    What Spark counts as records are also the pieces of work of Python's tasks, which have no bytes, and the batches of a cache.
    """
    store = _status_store(spark)
    caches = store.rddList(True)
    cached = {caches.apply(place).id() for place in range(caches.size())}
    rows = 0
    for stage in map(store.lastStageAttempt, stages):
        numbers = stage.rddIds()
        has_rows = stage.inputBytes() > 0 and cached.isdisjoint(numbers.apply(place) for place in range(numbers.size()))
        rows += stage.shuffleReadRecords() + (stage.inputRecords() if has_rows else 0)
    return rows


def _status_store(spark: SparkSession) -> Any:
    return attribute(spark.sparkContext, "_jsc").sc().statusStore()

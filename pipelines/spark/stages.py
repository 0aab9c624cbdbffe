"""Stages of a run: how long each took, how many of Spark's tasks the present one has finished, and what Spark says of its own stages:
seconds, spill and skew, from the status that it keeps of its last thousand, with or without its UI."""

import logging
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from pipelines.data.versions.data_profile import SparkStage
from pipelines.runtime.compat.spark import finished_stages, rows_read
from pipelines.runtime.progress import FIRST_LINE_SECONDS, LINE_SECONDS, Progress, is_json, tell

log = logging.getLogger(__name__)

BAR_SECONDS = 0.2
Spans = Mapping[str, tuple[float, float]]
"""Begin and end of each stage of the ETL, in seconds since 1970."""


class Stages:
    """Times stages: `with stages("fit"): …`. Shows their progress once it has a session."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.spans: dict[str, tuple[float, float]] = {}
        """Begin and end of each finished stage, in seconds since 1970."""
        self.spark: SparkSession | None = None

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start, is_over, start_time = time.monotonic(), Event(), time.time()
        watcher = Thread(target=self._watch, args=(name, start, is_over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()
            self.seconds[name] = round(time.monotonic() - start, 3)
            self.spans[name] = start_time, time.time()
        line = f"{name:10} {self.seconds[name]:6.1f} s"
        if is_json():
            tell("stage", line, stage=name, seconds=self.seconds[name])
        elif self.seconds[name] >= FIRST_LINE_SECONDS:  # in text, only of a long one, since `log_seconds` names all
            log.info("%s", line)

    def log_seconds(self) -> None:
        """Log the seconds of all stages in one line; as JSON, each has had an event."""
        if not is_json():
            stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
            log.info("seconds   %.1f: %s", sum(self.seconds.values()), stages)

    def _watch(self, name: str, start: float, is_over: Event) -> None:
        progress = Progress(sys.stderr, log.info)
        while not is_over.wait(BAR_SECONDS if progress.on_terminal else LINE_SECONDS):
            seconds = time.monotonic() - start
            finished, tasks, rows = self._count_tasks()
            seconds_left = seconds / finished * (tasks - finished) if finished else None
            rows_text = f", {rows:,} rows, {rows / seconds:,.0f} rows/s" if rows else ""
            left_text = f", {seconds_left:.0f} s left" if seconds_left is not None else ""
            state = f"{finished}/{tasks} tasks{rows_text}{left_text}" if tasks else "…"
            values = {"stage": name, "seconds": round(seconds, 1), "rows": rows, "seconds_left": seconds_left and round(seconds_left, 1)}
            progress.show(finished, tasks, f"{name:10} {seconds:6.1f} s  {state}", **values)
        progress.clear()

    def _count_tasks(self) -> tuple[int, int, int]:
        """Finished and all tasks of Spark's active stages, and the rows that the finished ones have read."""
        if self.spark is None:
            return 0, 0, 0
        tracker = self.spark.sparkContext.statusTracker()
        stages = [*filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds()))]
        rows = 0
        with suppress(Py4JError, OSError):  # a stage that Spark has forgotten
            rows = rows_read(self.spark, [stage.stageId for stage in stages])
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages), rows


def spark_stages(spark: SparkSession, spans: Spans) -> tuple[SparkStage, ...]:
    """Spark's finished stages that began within a span, in their order; none if Spark does not answer."""
    stages, first = [], min((begin for begin, _ in spans.values()), default=0.0)
    with suppress(Py4JError, OSError):
        for began, numbers in finished_stages(spark, since=first):
            stage = next((name for name, (begin, end) in spans.items() if begin <= began <= end), None)
            if stage is not None:
                seconds = {name: round(value, 3) for name, value in numbers.items() if name.endswith("seconds")}
                call = re.sub(r" at \S*/", " at ", numbers["call"])  # without the folder of the file
                stages.append(SparkStage(stage=stage, **{**numbers, **seconds, "call": call}))
    return tuple(sorted(stages, key=lambda stage: stage.number))


def event_log(spark: SparkSession) -> str:
    """Where Spark writes this application's events, for its history server; empty if it does not, or does not answer."""
    with suppress(Py4JError, OSError):
        context = spark.sparkContext
        if context.getConf().get("spark.eventLog.enabled", "false") == "true":
            folder = str(context.getConf().get("spark.eventLog.dir", "file:///tmp/spark-events"))
            return f"{folder.rstrip('/')}/{context.applicationId}"
    return ""

"""Stages of a run: how long each took, and how many of Spark's tasks the present one has finished."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from pyspark.sql import SparkSession

from pipelines.progress import LINE_SECONDS, Progress

log = logging.getLogger(__name__)

BAR_SECONDS = 0.2


class Stages:
    """Times stages: `with stages("fit"): …`. Shows their progress once it has a session."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.spark: SparkSession | None = None

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start, done = time.monotonic(), Event()
        watcher = Thread(target=self._watch, args=(name, start, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            self.seconds[name] = round(time.monotonic() - start, 3)
        log.info("%-10s %6.1f s", name, self.seconds[name])

    def _watch(self, name: str, start: float, done: Event) -> None:
        progress = Progress(sys.stderr, log.info)
        while not done.wait(BAR_SECONDS if progress.on_terminal else LINE_SECONDS):
            seconds = time.monotonic() - start
            finished, tasks = self._tasks()
            left = f", {seconds / finished * (tasks - finished):.0f} s left" if finished else ""
            state = f"{finished}/{tasks} tasks, {finished / seconds:.1f}/s{left}" if tasks else "…"
            progress.show(finished, tasks, f"{name:10} {seconds:6.1f} s  {state}")
        progress.clear()

    def _tasks(self) -> tuple[int, int]:
        """Finished and all tasks of Spark's active stages."""
        if self.spark is None:
            return 0, 0
        tracker = self.spark.sparkContext.statusTracker()
        known = [info for info in map(tracker.getStageInfo, tracker.getActiveStageIds()) if info]
        return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)

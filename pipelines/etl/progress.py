"""Stages of a run: how long each took, and how far the present one is.

On a terminal a bar with rate and time left, else a line every few seconds.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

LINE_SECONDS = 5.0
BAR_SECONDS = 0.2
_BAR = 30


class Stages:
    """Times stages: `with stages("fit"): …`. Knows how far they are once it has a session."""

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
        terminal = sys.stderr.isatty()
        while not done.wait(BAR_SECONDS if terminal else LINE_SECONDS):
            seconds = time.monotonic() - start
            finished, tasks = self._tasks()
            left = f", {seconds / finished * (tasks - finished):.0f} s left" if finished else ""
            state = f"{finished}/{tasks} tasks, {finished / seconds:.1f}/s{left}" if tasks else "…"
            if terminal:
                filled = _BAR * finished // max(tasks, 1)
                print(f"\r\033[K{name:10} [{'=' * filled:{_BAR}}] {state}", end="", file=sys.stderr, flush=True)
            else:
                log.info("%-10s %6.1f s  %s", name, seconds, state)
        if terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _tasks(self) -> tuple[int, int]:
        """Finished and all tasks of Spark's active stages."""
        if self.spark is None:
            return 0, 0
        tracker = self.spark.sparkContext.statusTracker()
        known = [info for info in map(tracker.getStageInfo, tracker.getActiveStageIds()) if info]
        return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)

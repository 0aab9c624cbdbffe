"""How many threads decode at once: as few as decode as fast as more of them, measured while batches are read.

Threads that decode hold each other up where Python's lock, memory or cores are what they wait for. How many are useful depends on the
columns, their encoding and the machine, so that no number fits all. The order of rows does not depend on it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

WINDOWS_PER_THREAD = 4
"""Windows that each thread decodes while a number of threads is measured."""
AS_FAST = 0.97
"""Fewer threads are as fast as more if they decode at least this share of their bytes a second."""


class Pace:
    """Lets so many threads decode at once, and begins with all. While their consumer waits, it halves the number while that is as fast."""

    def __init__(self, threads: int, now: Callable[[], float] = time.perf_counter) -> None:
        self.threads = threads
        """How many may decode at once."""
        self._now, self._condition, self._running = now, Condition(), 0
        self._rates: dict[int, float] = {}
        """Bytes a second, by the number of threads."""
        self._is_settled = threads == 1
        self._begin()

    @contextmanager
    def turn(self, size: int, is_awaited: Callable[[], bool]) -> Iterator[None]:
        """Decode a window of so many bytes within the block, which begins when a thread more may. `is_awaited` tells whether a
        consumer or a window waits, so that no thread is idle for lack of work."""
        with self._condition:
            self._condition.wait_for(lambda: self._running < self.threads)
            self._running += 1
        try:
            yield
        finally:
            with self._condition:
                self._running -= 1
                if not self._is_settled:
                    self._count(size, is_awaited())
                self._condition.notify()

    def _begin(self) -> None:
        # The next window to end begins the measurement, or the last of those that have begun with another number of threads.
        self._since, self._bytes, self._windows = self._now(), 0, -max(1, self._running)

    def _count(self, size: int, is_awaited: bool) -> None:
        """Count a decoded window, and choose the number of threads after enough of them. Without a consumer that waits, begin anew."""
        if not is_awaited:
            return self._begin()
        self._windows += 1
        if self._windows <= 0:
            self._since = self._now()
            return None
        self._bytes += size
        if self._windows >= WINDOWS_PER_THREAD * self.threads:
            self._rates[self.threads] = self._bytes / max(self._now() - self._since, 1e-9)
            self._choose()
        return None

    def _choose(self) -> None:
        best = max(self._rates.values())
        if self._rates[self.threads] >= AS_FAST * best and self.threads > 1:
            self.threads //= 2
        else:
            self.threads, self._is_settled = min(count for count, rate in self._rates.items() if rate >= AS_FAST * best), True
            self._condition.notify_all()
        self._begin()

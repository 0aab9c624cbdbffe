"""A background thread that produces a bounded number of items ahead of their use, and can be closed early."""

import queue
from collections.abc import Generator
from threading import Event, Thread
from typing import Any, Generic, TypeVar

from pipelines.loader.threads import compute_alone

Item = TypeVar("Item")

_JOIN_SECONDS = 0.01


class Producer(Generic[Item]):
    """Runs a generator in its own thread; `take` returns its items."""

    def __init__(self, items: Generator[Item, None, None], room: int) -> None:
        """At most this many items wait; the generator is always closed in its thread."""
        self._items = items
        self._ready: queue.Queue[Any] = queue.Queue(maxsize=room)
        self._stop = Event()
        self._thread = Thread(target=self._produce, name="loader", daemon=True)
        self._thread.start()

    def take(self) -> Item | None:
        """The next item, None after the last. Raises what the generator raised."""
        item: Item | BaseException | None = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """End the thread, and drop its items."""
        self._stop.set()
        while self._thread.is_alive():  # it may be waiting for space in the queue
            while not self._ready.empty():
                self._ready.get_nowait()
            self._thread.join(_JOIN_SECONDS)

    def _produce(self) -> None:
        """Put the items, then None or the exception that ended them, until told to stop."""
        try:
            compute_alone()
            for item in self._items:
                if self._stop.is_set():
                    return self._items.close()
                self._ready.put(item)
            self._ready.put(None)
        except BaseException as error:  # `take` raises it again
            self._ready.put(error)

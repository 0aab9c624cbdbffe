"""A background thread that produces a bounded number of items ahead of their use, starts no OpenMP threads of its own, and can be closed
early."""

import logging
import queue
import time
import weakref
from collections.abc import Generator
from threading import Event, Thread, current_thread
from typing import Any, Generic, TypeVar

import torch
from threadpoolctl import ThreadpoolController

log = logging.getLogger(__name__)

Item = TypeVar("Item")

_JOIN_SECONDS = 0.01
CLOSE_SECONDS = 30.0
"""Longest wait for a thread that reads from a store which does not answer."""
# Created here and not in a thread: it walks the list of loaded libraries, whose lock it holds while it waits for Python's. A thread
# that imports a compiled module meanwhile holds Python's lock and waits for the list's, both of them for ever.
_CONTROLLER = ThreadpoolController()


class Producer(Generic[Item]):
    """Runs a generator in its own thread; `take` returns its items. The thread ends with `close`; else when nobody has the producer any
    more, or before the interpreter ends: a daemon thread that is then inside torch aborts the process."""

    def __init__(self, items: Generator[Item, None, None], room: int) -> None:
        """At most this many items wait; the generator is always closed in its thread."""
        self._ready: queue.Queue[Any] = queue.Queue(maxsize=room)
        self._stop = Event()
        thread = Thread(target=_produce, args=(items, self._ready, self._stop), name="loader", daemon=True)
        thread.start()
        self._end = weakref.finalize(self, _end, thread, self._ready, self._stop)

    def take(self) -> Item | None:
        """The next item, None after the last. Raises what the generator raised, and RuntimeError if the producer is closed."""
        if self._stop.is_set():
            raise RuntimeError("the producer is closed")
        item: Item | BaseException | None = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """End the thread, and drop its items."""
        self._end()


def _produce(items: Generator[Item, None, None], ready: "queue.Queue[Any]", stop: Event) -> None:
    """Put the items, then None or the exception that ended them, until told to stop."""
    try:
        limit_openmp_threads()
        for item in items:
            if stop.is_set():
                return items.close()
            ready.put(item)
        ready.put(None)
    except BaseException as error:  # `take` raises it again
        ready.put(error)


def _end(thread: Thread, ready: "queue.Queue[Any]", stop: Event) -> None:
    stop.set()
    if thread is current_thread():  # where Python has just found that nobody has the producer any more
        return
    deadline = time.monotonic() + CLOSE_SECONDS
    while thread.is_alive():  # it may be waiting for space in the queue
        while not ready.empty():
            ready.get_nowait()
        thread.join(_JOIN_SECONDS)
        if time.monotonic() > deadline:
            log.warning("a read of the dataset has not ended in %.0f s, and is left alone", CLOSE_SECONDS)
            return


def limit_openmp_threads() -> None:
    """Run the operations of the calling thread in that thread alone, from now on. By default OpenMP gives every computing thread a team of
    one thread per core. The teams compete for cores: on two cores reading took 1.5 times as long with them."""
    torch.get_num_threads()  # sets torch's default now; otherwise the thread's first operation would overwrite this setting
    _CONTROLLER.limit(limits=1, user_api="openmp")

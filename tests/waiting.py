"""Waiting for a moment in a test: bounded, and a failure says what did not come."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def wait_until(
    holds: Callable[[], Answer], awaited: str, seconds: float = 60.0, *, say: Callable[[], str] = str, pause_seconds: float = 0.05
) -> Answer:
    """The first answer of `holds` that is true.

    Raises AssertionError after so many seconds, which names what was `awaited`, and what `say` has to say by then: a log, for
    example. `holds` itself may raise one as soon as it cannot come any more.
    """
    deadline = time.monotonic() + seconds
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {awaited}\n{say()}".rstrip()
        time.sleep(pause_seconds)
    return answer

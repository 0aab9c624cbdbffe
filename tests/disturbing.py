"""Disturbs a training at a known moment: in a thread, while the test's own trains."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import psutil
from waiting import wait_until

from pipelines.config import Config

DISTURBED_SECONDS = 240.0
"""Less than a test may take."""


@contextmanager
def act_at_step(config: Config, step: int, act: Callable[[], None]) -> Iterator[None]:
    """Act, once, when the run has reached that step, as far as its folder tells."""

    def is_reached() -> bool:
        return any(json.loads(file.read_text())["step"] >= step for file in Path(config.train.storage).glob("*/progress.json"))

    with act_when(is_reached, f"step {step} of a run in {config.train.storage}", act):
        yield


@contextmanager
def act_when(holds: Callable[[], object], awaited: str, act: Callable[[], None]) -> Iterator[None]:
    """Act in a thread when something holds. Raises what that raised, and AssertionError if it has not come when the block ends."""
    over, errors = Event(), list[BaseException]()

    def disturb() -> None:
        try:
            wait_until(lambda: over.is_set() or holds(), awaited, DISTURBED_SECONDS)
            assert not over.is_set(), f"it was over before {awaited}"
            act()
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=disturb, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(DISTURBED_SECONDS)
    assert not thread.is_alive(), f"what was to be done at {awaited} takes more than {DISTURBED_SECONDS:g} s"
    if errors:
        raise errors[0]


def workers() -> list[psutil.Process]:
    """Ray Train's worker processes below this one."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::RayTrainWorker"):
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return processes

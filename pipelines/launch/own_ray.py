"""A Ray of this machine and of this process: started for a training, and gone with it."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread, current_thread, main_thread
from typing import Any

import psutil
import ray

from pipelines.compat.ray import on_loopback
from pipelines.errors import TrainingError
from pipelines.interrupts import NUMBERS

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 128 * 2**20
"""Ray's shared memory is hardly used here."""
WORKER_NICENESS = 0
"""Ray's default of 15 lets everything else go before the workers, Ray's own daemons too, and a preempted worker holds up all."""
_NOTHING_COLLECTED = {"enable_metrics_collection": False, "event_stats": False, "task_events_report_interval_ms": 0}
"""Metrics and events are for a dashboard, which a Ray of our own has none of; metrics alone took 8 ms of CPU a second."""


@contextmanager
def own_ray(cpus: int, **settings: Any) -> Iterator[None]:
    """A Ray with so many CPUs, and `ray.init`'s settings. None of its processes is left afterwards, however this ends."""
    before = _below()
    try:
        with deaf_to_signals(), signals_kept(), on_loopback():
            ray.init(
                "local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _system_config={"worker_niceness": WORKER_NICENESS, **_NOTHING_COLLECTED},
                **settings,
            )
        _check_loopback()
        yield
    finally:
        _shut_down(_below() - before)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Around `ray.init`, which takes SIGTERM for itself: it is heeded as before, and the exit code is that of the signal.

    Ray's core also has a handler that aborts the process; a signal that waits must find ours again.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as left:
        if left.code != signal.SIGTERM:  # Ray's own way to leave
            raise
        raise SystemExit(128 + signal.SIGTERM) from left
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def deaf_to_signals() -> Iterator[None]:
    """Whatever is started meanwhile never hears SIGINT and SIGTERM.

    A terminal, `timeout` and Slurm send them to a whole process group, systemd to every process of a unit: Ray would go
    before its workers have saved. They end by SIGKILL, from `ray.shutdown` or, as Ray has it, with the process that started
    them. In this process only the thread that starts them is deaf, and only until they have started.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _check_loopback() -> None:
    if addresses := {node["NodeManagerAddress"] for node in ray.nodes()} - {LOOPBACK}:
        raise TrainingError(
            f"Ray {ray.__version__} listens on {', '.join(addresses)}, where others reach it, and not on {LOOPBACK} alone; "
            "install the version in constraints.txt"
        )


def _below() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


def _shut_down(processes: set[psutil.Process]) -> None:
    """`ray.shutdown`, and nothing of them is left."""
    raylet = next((process for process in processes if _is_raylet(process)), None)
    if raylet is not None:
        Thread(target=_kill_after, args=(raylet, processes), name="ray-shutdown", daemon=True).start()
    ray.shutdown()
    _kill(processes)


def _kill_after(raylet: psutil.Process, others: set[psutil.Process]) -> None:
    """`ray.shutdown` waits a second for each of its daemons to hear a SIGTERM; the raylet, its first, is worth that. What it
    starts meanwhile, as it does where Ray's own start was broken off, is added to the others."""
    while _lives(raylet):
        with suppress(psutil.Error):
            others.update(raylet.children(recursive=True))
        time.sleep(0.02)
    _kill(others)


def _kill(processes: set[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _is_raylet(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.ppid() == os.getpid() and process.name() == "raylet")
    return False


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False

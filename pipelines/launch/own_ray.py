"""Starts a Ray cluster on this machine for one training, and ends it with the training. Its files are private to this user."""

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, current_thread, main_thread
from typing import Any

import psutil
import ray

from pipelines.errors import LockstepError, TrainingError
from pipelines.runtime import atomic
from pipelines.runtime.compat.ray import few_daemons, loopback_only
from pipelines.runtime.interrupts import NUMBERS
from pipelines.runtime.machine import OBJECT_STORE_BYTES


@contextmanager
def ray_folder() -> Iterator[str]:
    """A folder for the sockets and logs of a Ray. Ray opens it to everyone, so it is inside one that only this user can enter.

    It is removed at the end of the block, unless that raises an error which Ray's logs may explain. It is in /tmp and not in
    TMPDIR, since the path of a socket has at most 107 characters.
    """
    folder, explained = tempfile.mkdtemp(prefix="lockstep-", dir="/tmp"), True
    try:
        yield f"{folder}/ray"
    except Exception as error:
        explained = isinstance(error, LockstepError) and not isinstance(error, TrainingError)
        raise
    finally:
        if explained:
            shutil.rmtree(folder, ignore_errors=True)


def keep_token() -> None:
    """Create the token for Ray's authentication, unless there is one, in a file of mode 600 in a folder of mode 700.

    Ray itself would create it at its first start, in a file that every user can read.
    """
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH") or os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return
    file = Path.home() / ".ray/auth_token"
    with suppress(PermissionError):  # the file is another user's; Ray will report what it cannot read
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.parent.chmod(0o700)
        if file.exists():
            file.chmod(0o600)
            return
        atomic.create_file(file, secrets.token_hex(32).encode(), mode=0o600)  # if another process was faster, its token is kept


LOOPBACK = "127.0.0.1"
WORKER_NICENESS = 0
"""Ray's default of 15 gives all other processes priority, even Ray's daemons, and a preempted worker delays all others."""
_NOTHING_COLLECTED = {"enable_metrics_collection": False, "event_stats": False, "task_events_report_interval_ms": 0}
"""Metrics and events are for the dashboard, which is not started here; metrics alone took 8 ms of CPU per second."""


@contextmanager
def own_ray(cpus: int, **settings: Any) -> Iterator[None]:
    """Start a Ray with `cpus` CPUs and settings of `ray.init`. All of its processes end with the block, however that ends."""
    previous = _descendants()
    try:
        with blocked_signals(), restored_handler(), loopback_only(), few_daemons():
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
        _shut_down(_descendants() - previous)


@contextmanager
def restored_handler() -> Iterator[None]:
    """Around `ray.init`: restore our handler of SIGTERM, which it replaces, and keep the signal's exit code.

    Ray's core also installs a handler that aborts the process; a pending signal must reach ours instead.
    """
    previous = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as exit_request:
        if exit_request.code != signal.SIGTERM:  # with which Ray's handler exits
            raise
        raise SystemExit(128 + signal.SIGTERM) from exit_request
    finally:
        if current_thread() is main_thread():
            signal.signal(signal.SIGTERM, previous)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Processes that are started in this block have SIGINT and SIGTERM blocked.

    A terminal, `timeout` and Slurm send these signals to a whole process group, and systemd to every process of a unit: Ray
    would exit before its workers have saved. Its processes end by SIGKILL instead, from `ray.shutdown` or, as Ray arranges,
    when the process that started them dies. In this process, only the calling thread is affected, and only in the block.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _check_loopback() -> None:
    if addresses := {node["NodeManagerAddress"] for node in ray.nodes()} - {LOOPBACK}:
        raise TrainingError(
            f"Ray {ray.__version__} listens on {', '.join(addresses)}, which other machines can reach, and not only on {LOOPBACK}; "
            "install the version in constraints.txt"
        )


def _descendants() -> set[psutil.Process]:
    """This process's descendants."""
    return set(psutil.Process().children(recursive=True))


def _shut_down(processes: set[psutil.Process]) -> None:
    """Call `ray.shutdown`, and kill those of the processes that remain."""
    raylet = next((process for process in processes if _is_raylet(process)), None)
    if raylet is not None:
        Thread(target=_kill_after, args=(raylet, processes), name="ray-shutdown", daemon=True).start()
    ray.shutdown()
    _kill(processes)


def _kill_after(raylet: psutil.Process, processes: set[psutil.Process]) -> None:
    """Kill the other processes as soon as the raylet has ended.

    `ray.shutdown` sends SIGTERM to one daemon after another and waits up to a second for each; only the raylet, its first,
    needs that. Processes that the raylet starts meanwhile, if Ray's own start was interrupted, are added to `processes`.
    """
    while _lives(raylet):
        with suppress(psutil.Error):
            processes.update(raylet.children(recursive=True))
        time.sleep(0.02)
    _kill(processes)


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

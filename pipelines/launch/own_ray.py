"""Starts a Ray cluster on this machine for one training, and ends it with the training. Its files are private to this user."""

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import psutil
import ray

from pipelines.errors import LockstepError, TrainingError
from pipelines.runtime import atomic
from pipelines.runtime.compat.ray import few_daemons, loopback_only, patient_start, shutdown_by, waiting_workers
from pipelines.runtime.environment import environment
from pipelines.runtime.interrupts import NUMBERS
from pipelines.runtime.machine import OBJECT_STORE_BYTES

LOOPBACK = "127.0.0.1"
WORKER_NICENESS = 0
"""Ray's default of 15 gives all other processes priority, even Ray's daemons, and a preempted worker delays all others."""
_NOTHING_COLLECTED = {"enable_metrics_collection": False, "event_stats": False, "task_events_report_interval_ms": 0}
"""Metrics and events are for the dashboard, which is not started here; metrics alone took 8 ms of CPU per second."""
_END_SECONDS = 5.0
"""The longest wait for killed processes; one may be writing to a disk that does not answer."""
STARTS = 2
"""Attempts to start a Ray whose node is late."""
_LATE = "timed out during startup"
"""Part of the message of `ray.init` when its node is late."""
_OWN = "lockstep"
"""The resource by which a process knows that its Ray was started here."""


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


@contextmanager
def own_ray(
    cpus: int, waiting: int | None = None, modules: Sequence[str] = (), variables: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[None]:
    """Start a Ray with `cpus` CPUs and settings of `ray.init`. All of its processes end with the block, however that ends.

    At once, `waiting` processes start and import `modules`, for the workers which the driver will ask for. All processes have these
    `variables`: a worker with a runtime environment of its own cannot take a waiting process."""
    previous = _descendants()
    system_config: dict[str, Any] = {"worker_niceness": WORKER_NICENESS, **_NOTHING_COLLECTED}
    try:
        with ExitStack() as start, blocked_signals(), restored_handler(), loopback_only(), few_daemons():
            if waiting is not None:
                start.enter_context(waiting_workers(waiting))
                start.enter_context(environment(variables or {}))
                # Ray ends processes that wait in excess of the limit, after a second.
                system_config |= {"num_workers_soft_limit": waiting, "preload_python_modules": list(modules)}
            ray_settings: dict[str, Any] = {"num_cpus": cpus, "resources": {_OWN: 1}, "include_dashboard": False, **settings}
            _start(previous, object_store_memory=OBJECT_STORE_BYTES, _system_config=system_config, **ray_settings)
        _check_loopback()
        yield
    finally:
        _shut_down(previous)


def _start(previous: set[psutil.Process], **settings: Any) -> None:
    """Call `ray.init`, and once more if Ray's node was late. Ray waits 30 s for it; on a busy machine, we wait as long as the node's
    processes have waited for a core.

    Raises TrainingError if it was late again.
    """
    for _ in range(STARTS):
        try:
            with patient_start(lambda: sum(map(_core_wait_seconds, _descendants() - previous))):
                ray.init("local", **settings)
        except Exception as error:  # Ray raises no class of its own
            if _LATE not in str(error):
                raise
            _shut_down(previous)
        else:
            return
    raise TrainingError(
        f"Ray has started {STARTS} times, and was late each time; this machine has {os.cpu_count()} CPUs and a load of "
        f"{os.getloadavg()[0]:.0f}; stop other programs, and run again"
    )


def is_own() -> bool:
    return ray.is_initialized() and _OWN in ray.cluster_resources()


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
    return set(psutil.Process().children(recursive=True))


def _core_wait_seconds(process: psutil.Process) -> float:
    """How long the threads of a process were ready to run while others had the cores: 0 where Linux does not count it."""
    seconds = 0.0
    for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            seconds += int(file.read_text(encoding="ascii").split()[1]) / 1e9
    return seconds


def _shut_down(previous: set[psutil.Process]) -> None:
    """Call `ray.shutdown`, and kill what this process has started, but for its `previous` descendants, instead of asking it to end.

    Ray would send SIGTERM to one daemon after another, and wait up to a second for each. None has anything to save.
    """
    with shutdown_by(lambda: _kill_descendants(previous)):
        ray.shutdown()
    _kill_descendants(previous)  # a start that was interrupted has left processes that `ray.shutdown` does not know


def _kill_descendants(previous: set[psutil.Process]) -> None:
    for process in _descendants() - previous:
        with suppress(psutil.NoSuchProcess):
            if process.ppid() == os.getpid() and process.name() == "raylet":
                process.suspend()  # it starts no more
    processes = _descendants() - previous
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    # Those of the raylet are gone too, but remain zombies until init looks at them, which may take a second.
    psutil.wait_procs(processes & set(psutil.Process().children()), timeout=_END_SECONDS)

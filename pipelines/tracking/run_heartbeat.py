"""Heartbeats: a tag that a live run renews, so that the next command can distinguish it from a killed one."""

import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from threading import Event, Thread
from typing import NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Run, RunStatus
from mlflow.exceptions import MlflowException

from pipelines.data.versions.versions import versions
from pipelines.errors import DatasetError, TrackingError
from pipelines.tracking.descriptions import HIDDEN

log = logging.getLogger(__name__)

HEARTBEAT, DATASET = "mlflow.lockstep.heartbeat", "mlflow.lockstep.dataset"
MODEL_DIGEST = "model.digest"
"""Tag that a training sets after its model has been logged."""
BEAT_SECONDS = 10.0
DEAD_SECONDS = 60.0
"""A run is dead if its last heartbeat is older, or, on the machine where it ran, as soon as its process has ended."""


class RunBeat(NamedTuple):
    time: float
    host: str
    process: int


def heartbeat() -> str:
    return json.dumps(RunBeat(time.time(), _host(), os.getpid())._asdict())


@cache
def _host() -> str:
    """The machine's name when this process first asked: it may change, as in another network, and the process is still the same."""
    return socket.gethostname()


def is_alive(tags: Mapping[str, str]) -> bool:
    """Whether the run with these tags is alive, as far as this machine can tell."""
    beat = _last_beat(tags)
    if beat is None:
        return False
    is_this_host = beat.host == _host()
    return time.time() - beat.time < DEAD_SECONDS and not (is_this_host and not _is_alive_process(beat.process))


def describe_beat(tags: Mapping[str, str]) -> str:
    """Process and host of a live run, and the time since its last heartbeat."""
    beat = _last_beat(tags)
    return f"process {beat.process} on {beat.host}, last heartbeat {time.time() - beat.time:.0f} s ago" if beat else "no heartbeat"


def is_of_another(tags: Mapping[str, str]) -> bool:
    """Whether a process other than this one is at work on the run with these tags."""
    beat = _last_beat(tags)
    return beat is not None and (beat.host, beat.process) != (_host(), os.getpid()) and is_alive(tags)


def check_is_dead(run: Run, work: str) -> None:
    """Raise TrackingError if a process is still at work on the run, which may be KILLED already while its workers save."""
    if is_alive(run.data.tags):
        raise TrackingError(
            f"run {run.info.run_id} is already training {work} ({describe_beat(run.data.tags)}); wait for it, stop it, or change the config"
        )


@contextmanager
def beating(client: MlflowClient, run_id: str) -> Iterator[None]:
    """Renew the heartbeat of the run inside the `with` block, in a thread. A failed beat is not retried before the next one.

    The heartbeat ends if another process has resumed the run, as after this one's machine was suspended."""
    stop = Event()

    def beat() -> None:
        while not stop.wait(BEAT_SECONDS):
            try:
                if is_of_another(client.get_run(run_id).data.tags):
                    return
                client.set_tag(run_id, HEARTBEAT, heartbeat())
            except MlflowException as error:
                log.warning("no heartbeat sent, MLflow is unreachable: %s", str(error).splitlines()[0])

    thread = Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10.0)  # a beat after the run's end would make it look alive


def correct_dead_runs(client: MlflowClient, experiment: str, dataset: str) -> None:
    """End runs that are RUNNING without a heartbeat, because they were killed or MLflow was unreachable at their end: as FINISHED if
    they have logged a model or made a dataset version, or else as FAILED.

    Versions are searched in the folder that the config of the run names, and in `dataset`, where this machine may see them.
    """
    running = [
        run
        for name in (HEARTBEAT, HEARTBEAT.removeprefix(HIDDEN))
        for run in client.search_runs([experiment], f"attributes.status = 'RUNNING' AND tags.`{name}` LIKE '%'", max_results=1_000)
    ]
    dead = {run.info.run_id: run for run in running if not is_alive(run.data.tags)}.values()
    folders = {dataset, *(run.data.tags.get(DATASET, run.data.params.get("dataset.path", dataset)) for run in dead)} if dead else set()
    finished_run_ids = set[str]()
    for folder in folders:
        with suppress(DatasetError, OSError):  # this machine may not see it
            finished_run_ids |= {manifest.run_id for _, manifest in versions(folder)}
    for run in dead:
        is_done = run.info.run_id in finished_run_ids or MODEL_DIGEST in run.data.tags
        status = RunStatus.to_string(RunStatus.FINISHED if is_done else RunStatus.FAILED)
        client.set_terminated(run.info.run_id, status)
        log.warning("run %s was left RUNNING by a process that has ended; its status is now %s", run.info.run_id, status)


def _last_beat(tags: Mapping[str, str]) -> RunBeat | None:
    """The last heartbeat; None if there is none or it is not valid."""
    try:
        beat = json.loads(tags.get(HEARTBEAT) or "")
        return RunBeat(float(beat["time"]), str(beat["host"]), int(beat["process"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _is_alive_process(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True

"""Heartbeats: a tag that a run at work renews, so that the next command can tell it from one that was killed."""

import json
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import NamedTuple

from mlflow import MlflowClient
from mlflow.entities import RunStatus
from mlflow.exceptions import MlflowException

from pipelines.dataset.versions import versions
from pipelines.errors import DatasetError

log = logging.getLogger(__name__)

HEARTBEAT = "lockstep.heartbeat"
MODEL_DIGEST = "model.digest"
"""The tag that a training sets once its model is filed."""
BEAT_SECONDS = 10.0
DEAD_SECONDS = 60.0
"""A run whose last heartbeat is older is dead. On the machine it ran on, it is dead as soon as its process is."""


class Beat(NamedTuple):
    time: float
    host: str
    process: int


def heartbeat() -> str:
    return json.dumps(Beat(time.time(), socket.gethostname(), os.getpid())._asdict())


def is_alive(tags: Mapping[str, str]) -> bool:
    """Whether the run with these tags is still at work, as far as can be told from here."""
    beat = _last(tags)
    if beat is None:
        return False
    here = beat.host == socket.gethostname()
    return time.time() - beat.time < DEAD_SECONDS and not (here and not _exists(beat.process))


def at_work(tags: Mapping[str, str]) -> str:
    """Where a live run works, and when it said so last."""
    beat = _last(tags)
    return f"process {beat.process} on {beat.host}, last heard of {time.time() - beat.time:.0f} s ago" if beat else "not heard of"


@contextmanager
def beating(client: MlflowClient, run_id: str) -> Iterator[None]:
    """Renew the run's heartbeat meanwhile, in a thread. A server that is away is tried again at the next beat."""
    stop = Event()

    def beat() -> None:
        while not stop.wait(BEAT_SECONDS):
            try:
                client.set_tag(run_id, HEARTBEAT, heartbeat())
            except MlflowException as error:
                log.warning("no heartbeat, MLflow is away: %s", str(error).splitlines()[0])

    thread = Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=1.0)


def correct_dead(client: MlflowClient, experiment: str, dataset: str) -> None:
    """End what is RUNNING without a heartbeat, as a kill left it, or an MLflow that was away: as FINISHED if it had filed its
    model or made a dataset version, else as FAILED.

    Versions are looked for in the folder that the run's own config names, and in `dataset`, where they may lie for this machine.
    """
    running = client.search_runs([experiment], f"attributes.status = 'RUNNING' AND tags.`{HEARTBEAT}` LIKE '%'", max_results=1_000)
    dead = [run for run in running if not is_alive(run.data.tags)]
    folders = {dataset, *(run.data.params.get("dataset.path", dataset) for run in dead)} if dead else set()
    made = set[str]().union(*map(_makers, folders))
    for run in dead:
        is_done = run.info.run_id in made or MODEL_DIGEST in run.data.tags
        status = RunStatus.to_string(RunStatus.FINISHED if is_done else RunStatus.FAILED)
        client.set_terminated(run.info.run_id, status)
        log.warning("run %s was left RUNNING by a process that is gone: it is %s now", run.info.run_id, status)


def _makers(dataset: str) -> set[str]:
    """Runs that made the versions in a dataset's folder; none where it cannot be read."""
    with suppress(DatasetError, OSError):
        return {manifest.run_id for _, manifest in versions(dataset)}
    return set()


def _last(tags: Mapping[str, str]) -> Beat | None:
    """The last heartbeat; None if there is none, or if somebody has edited it."""
    try:
        beat = json.loads(tags[HEARTBEAT])
        return Beat(float(beat["time"]), str(beat["host"]), int(beat["process"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

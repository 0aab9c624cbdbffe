"""Asks the servers that a pipeline uses: MLflow, the stores of its dataset and its runs, and what listens on its ports."""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.data.versions.storage import ask, locate
from pipelines.errors import LockstepError
from pipelines.runtime.disks import Reading, disk
from pipelines.runtime.machine import port
from pipelines.tracking.client import SQLITE, connect, mlflow_errors

UI_PORT = 5000
"""Port of `make ui`, unless PORT is another."""
_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}


def mlflow(uri: str) -> Reading:
    """Whether MLflow answers. A file that does not exist is not created: a first run does that."""
    if uri.startswith(SQLITE) and not (file := Path(uri.removeprefix(SQLITE))).exists():
        reading = disk(file.parent, "MLflow's database would be", "set tracking.uri to a file in another folder, or to a server")
        return reading if reading.fault else Reading(f"{uri}, which the first run creates")
    try:
        with mlflow_errors(uri):
            connect(uri).search_experiments(max_results=1)
    except LockstepError as error:
        return Reading(uri, str(error))
    return Reading(f"{uri} answers")


@contextmanager
def short_timeouts() -> Iterator[None]:
    """Around requests to MLflow, which would wait for half a minute, unless the environment says how long."""
    added = _PATIENCE.keys() - os.environ.keys()
    os.environ.update({name: _PATIENCE[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def store(uri: str) -> Reading:
    """Whether the store of a URI answers, with the credentials that a command would have."""
    try:
        ask(*locate(uri))
    except LockstepError as error:
        return Reading(uri, str(error))
    return Reading(f"{uri} answers")


def listener(host: str, number: int, remedy: str) -> Reading:
    """Whether a port is free, or has a server of ours: MLflow and the endpoint answer at /health."""
    reading = port(host, number)
    if not reading.fault:
        return reading
    address = host if host not in ("", "0.0.0.0", "::") else "127.0.0.1"
    try:
        with urllib.request.urlopen(f"http://{f'[{address}]' if ':' in address else address}:{number}/health", timeout=1.0):
            return Reading(f"{host}:{number} has a server that answers")
    except (OSError, ValueError):
        return Reading(reading.text, f"{reading.fault}; {remedy}")

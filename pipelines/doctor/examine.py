"""Runs the checks of the doctor, all at once, and gives their lines in a fixed order."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pipelines.config import Config, home
from pipelines.config.load import absolute_uri
from pipelines.config.tracking import Tracking
from pipelines.doctor.packages import bytecode, package_versions, python_version, version_notes
from pipelines.doctor.servers import UI_PORT, listener, mlflow, short_timeouts, store
from pipelines.errors import ConfigError, DatasetError, LockstepError, MismatchError, TrackingError, TrainingError
from pipelines.runtime import machine
from pipelines.runtime.disks import SPARK_DISK_REMEDY, Reading, disk

Status = Literal["ok", "note", "wrong"]
RAY_FOLDER = "/tmp"
"""Where a training puts Ray's folder: the path of a socket has at most 107 characters."""


@dataclass(frozen=True)
class Diagnosis:
    """One line: what was checked, and what is there, or else the fault and its remedy."""

    name: str
    text: str
    status: Status = "ok"
    exit_code: int = 0
    """Of the error that a command would raise for it."""


@dataclass(frozen=True)
class Check:
    name: str
    read: Callable[[], Reading]
    error: type[LockstepError] | None
    """What a command would raise for a fault; None where a command works all the same."""

    def diagnose(self, reading: Reading) -> Diagnosis:
        """The line of a reading; without an error class, a fault is only a note."""
        if not reading.fault:
            return Diagnosis(self.name, reading.text)
        if self.error is None:
            return Diagnosis(self.name, reading.fault, "note")
        return Diagnosis(self.name, reading.fault, "wrong", self.error.exit_code)


def diagnoses(config: Config | None = None) -> Iterator[Diagnosis]:
    """A line for each check, in the order in which a pipeline needs what is checked. Without a config, the defaults are examined.

    Servers are asked meanwhile, in threads: one that is away answers late. The others are not read in threads, since two requirements of
    packages that are parsed at once are a SystemError in Python 3.11 ("AST constructor recursion depth mismatch").
    """
    servers = list(_server_checks(config))
    with short_timeouts(), ThreadPoolExecutor(len(servers)) as pool:
        readings = [pool.submit(_read, check) for check in servers]
        for check in _machine_checks():
            yield check.diagnose(_read(check))
        for check, reading in zip(servers, readings, strict=True):
            yield check.diagnose(reading.result())


def _machine_checks() -> Iterator[Check]:
    yield Check("python", python_version, MismatchError)
    yield Check("packages", package_versions, MismatchError)
    yield Check("tested", version_notes, None)
    yield Check("bytecode", bytecode, None)
    yield Check("java", machine.java, DatasetError)
    yield Check("memory", machine.memory, DatasetError)
    folders = {
        "home": (str(home()), "datasets and runs are", "set LOCKSTEP_HOME to another folder"),
        "spark": (os.environ.get("SPARK_LOCAL_DIRS") or "/tmp", "Spark shuffles", SPARK_DISK_REMEDY),
        "ray": (RAY_FOLDER, "Ray has its sockets and logs", "free some, or mount a larger disk there"),
    }
    for name, place in folders.items():
        yield Check(f"{name} disk", partial(disk, *place), DatasetError)
    yield Check("shm", machine.dev_shm, None)
    yield Check("gpus", machine.gpus, TrainingError)


def _server_checks(config: Config | None) -> Iterator[Check]:
    uri = config.tracking.uri if config else absolute_uri(Tracking().uri, home())
    yield Check("mlflow", partial(mlflow, uri), TrackingError)
    if config is None:
        yield Check("ui port", partial(listener, "127.0.0.1", UI_PORT, "choose another port: make ui PORT=5001"), None)
        return
    endpoint = config.endpoint
    yield Check("port", partial(listener, endpoint.host, endpoint.port, "set endpoint.port to a free one"), ConfigError)
    for place in dict.fromkeys((config.dataset.path, config.train.storage)):
        if "://" in place:
            yield Check("store", partial(store, place), DatasetError)
        elif place and not Path(place).is_relative_to(home()):
            remedy = "set dataset.path and train.storage to other folders"
            yield Check("data disk", partial(disk, place, "versions and checkpoints are", remedy), DatasetError)


def _read(check: Check) -> Reading:
    """Read what a check is about. A package that is missing is a fault of every check that needs it."""
    try:
        return check.read()
    except ModuleNotFoundError as error:
        return Reading("", f"{error.name} is missing, so this is unknown; install what the line about packages says")

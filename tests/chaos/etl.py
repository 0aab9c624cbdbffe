"""ETL under faults: one to a job, at a random moment of its work; then the same command again, and the digest compared."""

import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from people import write_pipeline
from waiting import wait_until

from chaos.processes import Job
from chaos.training import Outcome
from pipelines.data.versions.versions import open_version, versions
from pipelines.errors import DatasetError, LockstepError

JOB_SECONDS = 240.0
DOCUMENTED = {error.exit_code for error in LockstepError.__subclasses__()}
LEFT = (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT)
"""With or before Spark's start."""
LIMIT = """import resource, sys
if "pyspark.worker" in " ".join(sys.orig_argv):
    resource.setrlimit(resource.RLIMIT_FSIZE, ({0}, {0}))
"""
"""A disk that takes no file longer than that, for Spark's Python processes, which write the version."""


def start(folder: Path, uri: str, master: str = "local[2]", **variables: str) -> Job:
    """`jobs/etl.py` on the pipeline in `folder`, which is written if it is not there."""
    pipeline = folder / "people.yaml"
    if not pipeline.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_pipeline(folder, uri)
    submit = f"--master {master} --conf spark.ui.enabled=false --driver-memory 1g --executor-memory 512m pyspark-shell"
    return Job(["jobs/etl.py", str(pipeline)], folder / "job.log", PYSPARK_SUBMIT_ARGS=submit, **variables)


def digest(folder: Path) -> str | None:
    """Of the only version; None if there is none. Raises CorruptError if it is not whole."""
    found = list(versions(str(folder / "data")))
    assert len(found) < 2, "one config made two versions"
    return open_version(found[0][0]).digest if found else None


def below(job: Job, *words: str) -> list[psutil.Process]:
    """Processes of the job whose command line has all the words, the deepest last."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(job.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if all(word in " ".join(process.cmdline()) for word in words):
                    found.append(process)
    return found


@dataclass
class Undisturbed:
    digest: str
    seconds: float


def undisturbed(folder: Path, uri: str) -> Undisturbed:
    began = time.monotonic()
    job = start(folder, uri)
    assert job.wait(JOB_SECONDS) == 0, job.tail(40)
    seconds = time.monotonic() - began
    found = digest(folder)
    assert found is not None
    return Undisturbed(found, seconds)


def killed(job: Job, chance: random.Random) -> None:
    job.signal(signal.SIGKILL)


def terminated(job: Job, chance: random.Random) -> None:
    job.signal(signal.SIGTERM)


def interrupted(job: Job, chance: random.Random) -> None:
    job.signal(signal.SIGINT)


def _kill_one(job: Job, chance: random.Random, *words: str) -> None:
    """Whichever there is first, if none is there now."""

    def is_killed() -> bool:
        with suppress(psutil.NoSuchProcess):
            if found := below(job, *words):
                chance.choice(found).kill()
                return True
        return job.ended is not None

    wait_until(is_killed, f"a process of the job with {', '.join(words)}", JOB_SECONDS, say=job.tail, pause_seconds=0.02)


def python_killed(job: Job, chance: random.Random) -> None:
    """One of Spark's Python workers, or the process that forks them."""
    _kill_one(job, chance, "pyspark.worker")


def executor_killed(job: Job, chance: random.Random) -> None:
    _kill_one(job, chance, "CoarseGrainedExecutorBackend")


def driver_killed(job: Job, chance: random.Random) -> None:
    """The JVM, which the job talks to."""
    _kill_one(job, chance, "java")


def untouched(job: Job, chance: random.Random) -> None:
    """The fault was there from the start."""


FAULTS: dict[str, Callable[[Job, random.Random], Any]] = {
    "ETL killed": killed,
    "ETL SIGTERM": terminated,
    "ETL SIGINT": interrupted,
    "ETL Python worker killed": python_killed,
    "ETL executor killed": executor_killed,
    "ETL Java driver killed": driver_killed,
    "ETL disk full": untouched,
    "ETL twice at once, one killed": killed,
}


def disturb(name: str, number: int, seed: int, folder: Path, uri: str, whole: Undisturbed) -> Outcome:
    """Cause a fault, and say whether it ended as it must: no half version, an error in a line, and the same digest again."""
    chance = random.Random(f"{seed}/{name}/{number}")
    variables = {}
    if name == "ETL disk full":
        (folder / "limit").mkdir(parents=True)
        (folder / "limit/sitecustomize.py").write_text(LIMIT.format(chance.randrange(500, 9_000)))
        variables["first"] = str(folder / "limit")
    latest = 0.9 * whole.seconds
    for attempt in range(5):  # a job may be done before its fault
        place = folder / f"data-of-{attempt}"
        job = start(place, uri, "local-cluster[2,1,1024]" if name == "ETL executor killed" else "local[2]", **variables)
        other = start(place, uri) if name == "ETL twice at once, one killed" else None
        began = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            job.wait(chance.uniform(2.0, latest))
        moment = time.monotonic()
        if job.ended is None or name == "ETL disk full":
            FAULTS[name](job, chance)
            outcome = _ended(name, job, other, place, uri, whole)
            outcome.seconds, outcome.note = time.monotonic() - moment, f"after {moment - began:.0f} s; {outcome.note}"
            return outcome
        latest *= 0.6
    return Outcome(name, False, note="the job was always done before its fault")


def _ended(name: str, job: Job, other: Job | None, folder: Path, uri: str, whole: Undisturbed) -> Outcome:
    code = job.wait(JOB_SECONDS)
    printed = job.tail(3)
    try:
        half = digest(folder) not in (None, whole.digest)
        if other is not None:
            assert other.wait(JOB_SECONDS) == 0, f"the other of two: {other.tail()}"
        if code:
            again = start(folder, uri)
            assert again.wait(JOB_SECONDS) == 0, f"the same command again: {again.tail()}"
        assert not half, "another version was there after the fault"
        assert digest(folder) == whole.digest, "another digest than undisturbed"
    except (AssertionError, DatasetError) as error:
        return Outcome(name, False, note=str(error))
    told = code in LEFT or (code in DOCUMENTED and "Traceback" not in printed)
    if name == "ETL disk full" and code:
        told = told and str(folder) in printed
    return Outcome(name, told, note=f"left with {code}" + ("" if told else f": {printed}"))

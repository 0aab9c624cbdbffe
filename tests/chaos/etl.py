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
EXIT_CODES = (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT)
"""After a fault: of a job that is done, or ended by a signal before or after Spark's start."""
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
    entries = list(versions(str(folder / "data")))
    assert len(entries) < 2, "one config made two versions"
    return open_version(entries[0][0]).digest if entries else None


def child_processes(job: Job, *words: str) -> list[psutil.Process]:
    """Processes of the job whose command line has all the words, the deepest last."""
    processes = []
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(job.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if all(word in " ".join(process.cmdline()) for word in words):
                    processes.append(process)
    return processes


@dataclass
class Reference:
    """An ETL without a fault."""

    digest: str
    seconds: float


def run_reference(folder: Path, uri: str) -> Reference:
    began = time.monotonic()
    job = start(folder, uri)
    assert job.wait(JOB_SECONDS) == 0, job.tail(40)
    seconds = time.monotonic() - began
    version_digest = digest(folder)
    assert version_digest is not None
    return Reference(version_digest, seconds)


def kill(job: Job, chance: random.Random) -> None:
    job.signal(signal.SIGKILL)


def terminate(job: Job, chance: random.Random) -> None:
    job.signal(signal.SIGTERM)


def interrupt(job: Job, chance: random.Random) -> None:
    job.signal(signal.SIGINT)


def _kill_one(job: Job, chance: random.Random, *words: str) -> None:
    """Kill a process with these words in its command line; wait for one if there is none."""

    def is_killed() -> bool:
        with suppress(psutil.NoSuchProcess):
            if processes := child_processes(job, *words):
                chance.choice(processes).kill()
                return True
        return job.ended is not None

    wait_until(is_killed, f"a process of the job with {', '.join(words)}", JOB_SECONDS, say=job.tail, pause_seconds=0.02)


def kill_python_worker(job: Job, chance: random.Random) -> None:
    """Kill one of Spark's Python workers, or the process that forks them."""
    _kill_one(job, chance, "pyspark.worker")


def kill_executor(job: Job, chance: random.Random) -> None:
    _kill_one(job, chance, "CoarseGrainedExecutorBackend")


def kill_java_driver(job: Job, chance: random.Random) -> None:
    """Kill the JVM, which the job talks to."""
    _kill_one(job, chance, "java")


def do_nothing(job: Job, chance: random.Random) -> None:
    """Leave the job alone: the fault was there from the start."""


FAULTS: dict[str, Callable[[Job, random.Random], Any]] = {
    "ETL killed": kill,
    "ETL SIGTERM": terminate,
    "ETL SIGINT": interrupt,
    "ETL Python worker killed": kill_python_worker,
    "ETL executor killed": kill_executor,
    "ETL Java driver killed": kill_java_driver,
    "ETL disk full": do_nothing,
    "ETL twice at once, one killed": kill,
}


def disturb(name: str, number: int, seed: int, folder: Path, uri: str, reference: Reference) -> Outcome:
    """Cause a fault, and say whether it ended as it must: no half version, an error in a line, and the same digest again."""
    chance = random.Random(f"{seed}/{name}/{number}")
    variables = {}
    if name == "ETL disk full":
        (folder / "limit").mkdir(parents=True)
        (folder / "limit/sitecustomize.py").write_text(LIMIT.format(chance.randrange(500, 9_000)))
        variables["first"] = str(folder / "limit")
    latest = 0.9 * reference.seconds
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
            outcome = _outcome(name, job, other, place, uri, reference)
            outcome.seconds, outcome.note = time.monotonic() - moment, f"after {moment - began:.0f} s; {outcome.note}"
            return outcome
        latest *= 0.6
    return Outcome(name, False, note="the job was always done before its fault")


def _outcome(name: str, job: Job, other: Job | None, folder: Path, uri: str, reference: Reference) -> Outcome:
    code = job.wait(JOB_SECONDS)
    printed = job.tail(3)
    try:
        is_other_version = digest(folder) not in (None, reference.digest)
        if other is not None:
            assert other.wait(JOB_SECONDS) == 0, f"the other of two: {other.tail()}"
        if code:
            second = start(folder, uri)
            assert second.wait(JOB_SECONDS) == 0, f"the same command again: {second.tail()}"
        assert not is_other_version, "another version was there after the fault"
        assert digest(folder) == reference.digest, "another digest than undisturbed"
    except (AssertionError, DatasetError) as error:
        return Outcome(name, False, note=str(error))
    is_documented = code in EXIT_CODES or (code in DOCUMENTED and "Traceback" not in printed)
    if name == "ETL disk full" and code:
        is_documented = is_documented and str(folder) in printed
    return Outcome(name, is_documented, note=f"left with {code}" + ("" if is_documented else f": {printed}"))

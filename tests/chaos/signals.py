"""Signals to jobs, as people, `timeout` and schedulers send them: to the one process, to its group, to every process below it."""

import os
import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml
from mlflow import MlflowClient
from sessions import session_pids
from trainings import training
from waiting import wait_until

from chaos.processes import Job
from chaos.training import Outcome
from chaos.trajectory import attempts
from pipelines.config import Config

WITHIN_SECONDS = 15.0
"""From the signal until nothing of the job is left; Slurm and Kubernetes grant 30."""
LATEST_SECONDS = 20.0
"""Random moments are spread so far: half of them from the start on, half from the first step."""
STEP_SECONDS = (0.05, 1.0, 4.0)
START_SECONDS = 240.0
RANDOM_MOMENTS = 20


def to_process(job: Job, number: int) -> None:
    os.kill(job.process.pid, number)


def to_group(job: Job, number: int) -> None:
    """Ctrl-C, and `kill -- -PGID`."""
    os.killpg(job.process.pid, number)


def as_timeout_does(job: Job, number: int) -> None:
    """To the process, and then to its group, so that the process has it twice."""
    to_process(job, number)
    to_group(job, number)


def to_every_process(job: Job, number: int) -> None:
    """As systemd stops a unit, and Slurm a step."""
    for process in session_pids(job.process.pid):
        with suppress(ProcessLookupError):
            os.kill(process, number)


WAYS: dict[str, Callable[[Job, int], None]] = {
    "to the process": to_process,
    "to its group": to_group,
    "as timeout": as_timeout_does,
    "to every process": to_every_process,
}


@dataclass
class Exit:
    """How a job ended after a signal."""

    code: int
    seconds: float
    """Until nothing of it was left."""
    statuses: list[str]
    """Of its runs in MLflow."""
    printed: str
    signal_time: float
    """When the signal was sent, as `time.time` counts."""


def send_signal(job: Job, way: str, number: int, store: Path) -> Exit:
    """Send a signal, and wait until nothing of the job is left. `store` is MLflow's file."""
    signal_time, began = time.time(), time.monotonic()
    WAYS[way](job, number)
    job.wait(120)
    while session_pids(job.process.pid) and time.monotonic() - began < 60:
        time.sleep(0.05)
    seconds = time.monotonic() - began
    running = [psutil.Process(process).name() for process in session_pids(job.process.pid)]
    assert not running, f"left running: {running}\n{job.tail()}"
    return Exit(job.process.returncode, seconds, statuses(store), job.log.read_text(errors="replace"), signal_time)


def statuses(store: Path) -> list[str]:
    if not store.exists():
        return []
    client = MlflowClient(f"sqlite:///{store}")
    return [run.info.status for experiment in client.search_experiments() for run in client.search_runs([experiment.experiment_id])]


def start_training(
    folder: Path, step_seconds: float, evaluation_seconds: float = 0.0, rows: int = 640, **train: object
) -> tuple[Job, Config]:
    """A training on a Ray of its own, of steps that take so long, and each of a worker's shards in an evaluation's batch."""
    task = {
        "kind": "chaos.settings:Recorded",
        "records": str(folder / "records"),
        "step_seconds": step_seconds,
        "evaluation_seconds": evaluation_seconds,
    }
    config = training(folder, rows=rows, task=task, numbered=True, workers=2, **{"epochs": 50, **train})
    path = folder / "signalled.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json", by_alias=True)))
    return Job(["jobs/train.py", str(path)], folder / "job.log"), config


def steps_made(folder: Path, until: float) -> int:
    """Steps that were made by then: all workers have begun the next one."""
    workers = [records for attempt in attempts(folder / "records") for records in attempt.steps.values()]
    latest = [max((record.step for record in records if record.time < until), default=0) for records in workers]
    return max(0, min(latest, default=0) - 1)


def steps_saved(config: Config) -> int:
    """Of the newest whole checkpoint; 0 if there is none."""
    records = Path(config.train.storage).glob("*/checkpoints/step-*/record.json")
    return max((int(re.findall(r"step-(\d+)", str(record))[-1]) for record in records), default=0)


def fault(job_exit: Exit, number: int, folder: Path, config: Config) -> str:
    """A sentence about what is not as documented; empty if all is."""
    if job_exit.code not in (128 + number, -number):
        return f"left with {job_exit.code}"
    if set(job_exit.statuses) - {"KILLED"}:
        return f"its run is {', '.join(job_exit.statuses)}"
    if "Traceback" in job_exit.printed:
        return "printed a traceback"
    steps, saved_steps = steps_made(folder, job_exit.signal_time), steps_saved(config)
    return f"{steps} steps were made and {saved_steps} saved" if saved_steps < steps else ""


def delay(job_exit: Exit) -> str:
    """A sentence if it took too long, else nothing."""
    return f"took more than {WITHIN_SECONDS:.0f} s" if job_exit.seconds > WITHIN_SECONDS else ""


def disturb(number: int, seed: int, folder: Path) -> Outcome:
    """A signal at a random moment of a training's start, or of its steps."""
    chance = random.Random(f"{seed}/signals/{number}")
    way, signal_number = list(WAYS)[number % len(WAYS)], chance.choice([signal.SIGTERM, signal.SIGINT])
    step_seconds, moment = chance.choice(STEP_SECONDS), chance.uniform(0.5, LATEST_SECONDS)
    folder.mkdir(parents=True)
    job, config = start_training(folder, step_seconds)
    since = "the start" if number // len(WAYS) % 2 else "the first step"

    def has_begun() -> bool:
        assert job.ended is None, job.tail(40)
        return any(folder.glob("records/*"))

    if since == "the first step":
        wait_until(has_begun, since, START_SECONDS, say=job.tail)
    time.sleep(moment)
    job_exit = send_signal(job, way, signal_number, folder / "mlflow.db")
    faults = "; ".join(filter(None, [fault(job_exit, signal_number, folder, config), delay(job_exit)]))
    when = f"{way} {moment:.0f} s after {since}, steps of {step_seconds} s"
    note = f"{when}, {steps_saved(config)} saved in {job_exit.seconds:.1f} s{faults and ': '}{faults}"
    return Outcome(f"{signal.Signals(signal_number).name} {way}", not faults, seconds=job_exit.seconds, note=note)

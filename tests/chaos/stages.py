"""SIGINT and SIGTERM to jobs in each of their stages, and what may be left then."""

import random
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from people import write_pipeline
from sessions import session_pids
from stores import new_store
from waiting import wait_until

from chaos.etl import child_processes
from chaos.processes import Job
from chaos.signals import Exit, delay, fault, send_signal, start_training, steps_saved
from chaos.training import Outcome
from pipelines.config import Config

Condition = Callable[[Job, Path], object]
"""Whether a job has reached a stage."""
NUMBERS = (signal.SIGINT, signal.SIGTERM)
SPARK_SUBMIT = ["-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", "spark-submit", "--master", "local[2]"]
ETL = {"PYSPARK_SUBMIT_ARGS": "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false pyspark-shell"}
EVALUATED = 3_200
"""Rows to validate: seven batches, of four shards for each of two workers."""
STEPS = EVALUATED * 4 // 64
STAGE_SECONDS = 240.0


def wait_for_stage(job: Job, stage: str, is_reached: Callable[[], object]) -> None:
    def holds() -> bool:
        if is_reached():
            return True
        assert job.ended is None, job.tail(40)
        return False

    wait_until(holds, stage, STAGE_SECONDS, say=job.tail, pause_seconds=0.01)


def is_importing(job: Job, folder: Path) -> bool:
    """Whether the job's Python is loading packages."""
    for process in [psutil.Process(job.process.pid), *child_processes(job, "jobs/")]:
        with suppress(psutil.Error):
            if "python" in process.name() and process.cpu_times().user > 0.3:
                return True
    return False


def process_runs(name: str) -> Condition:
    """Whether a process of that name has started."""

    def has_started(job: Job, folder: Path) -> bool:
        for number in session_pids(job.process.pid):
            with suppress(psutil.NoSuchProcess):
                if name in psutil.Process(number).name():
                    return True
        return False

    return has_started


def stage_is_over(stage: str) -> Condition:
    """Whether ETL has told of the end of a stage, in lines of JSON."""
    event = re.compile(rf'"event": "stage".*"stage": "{stage}"')
    return lambda job, folder: event.search(job.log.read_text(errors="replace"))


def step_is_made(step: int) -> Condition:
    line = f'"step": {step},'.encode()
    return lambda job, folder: any(line in file.read_bytes() for file in folder.glob("records/*"))


def prints(text: str) -> Condition:
    return lambda job, folder: text in job.log.read_text(errors="replace")


def file_exists(pattern: str) -> Condition:
    return lambda job, folder: any(folder.glob(pattern))


ETL_STAGES: dict[str, Condition] = {
    "start": is_importing,
    "Spark starts": process_runs("java"),
    "checksums": stage_is_over("analysis"),
    "read": stage_is_over("checksums"),
    "fit": stage_is_over("read"),
    "write": file_exists("data/*/data-*/**/*.parquet"),
    "commit": stage_is_over("write"),
    "filing": file_exists("data/*/manifest.json"),
}
BEFORE_THE_RUN = ("start", "Spark starts", "checksums")


@dataclass
class Stage:
    """A stage of a training."""

    is_reached: Condition
    settings: dict[str, Any] = field(default_factory=dict)
    saved: int = 0
    """Steps that are saved by the time that the job has ended."""


TRAINING_STAGES = {
    "start": Stage(is_importing),
    "Ray starts": Stage(process_runs("raylet")),
    "workers start": Stage(prints(" starts: ")),
    "epoch": Stage(step_is_made(3), {"step_seconds": 0.5}, 2),
    "validation": Stage(step_is_made(STEPS), {"evaluation_seconds": 0.4}, STEPS),
    "save": Stage(file_exists("runs/*/checkpoints/*/*.distcp*"), {"step_seconds": 0.2, "checkpoint": {"every_steps": 1}}, 1),
    "filing": Stage(file_exists("runs/*/weights.safetensors"), {}, STEPS),
}


SERVERS = {"strategy": {"kind": "parameter_server", "servers": 2, "mode": "bounded", "staleness": 4, "backups": 1}}
KINDS: dict[str, dict[str, Any]] = {"training": {}, "training with servers": SERVERS}
"""Of trainings, with their settings."""


def etl_fault(job_exit: Exit, stage: str, number: int, folder: Path, under_submit: bool) -> str:
    """A sentence about what is not as documented; empty if all is: a version that FINISHED, or nothing and a run that is KILLED."""
    files = [str(path.relative_to(folder)) for path in folder.glob("data/**/*") if path.is_file()]
    signal_codes = (128 + number, -number)
    if "Traceback" in job_exit.printed:
        return "printed a traceback"
    if any(file.endswith("manifest.json") for file in files):
        java_codes = signal_codes if under_submit else ()
        is_true = job_exit.code in (0, *java_codes) and job_exit.statuses == ["FINISHED"]
        return "" if is_true else f"the version is there: left with {job_exit.code}, its run is {job_exit.statuses}"
    statuses = ([["KILLED"], []] if stage in (*BEFORE_THE_RUN, "read") else [["KILLED"]]) if stage != "start" else [[]]
    if job_exit.code not in signal_codes or job_exit.statuses not in statuses:
        return f"there is no version: left with {job_exit.code}, its run is {job_exit.statuses}"
    return f"left {', '.join(files[:3])}" if files else ""


def etl(folder: Path, stage: str, way: str, number: int, under_submit: bool) -> tuple[Exit, str]:
    """Send a signal to ETL in a stage. Returns how it ended, and what is not as documented."""
    pipeline = write_pipeline(folder, new_store(folder))
    job = Job([*(SPARK_SUBMIT if under_submit else []), "jobs/etl.py", str(pipeline), "--json"], folder / "job.log", **ETL)
    wait_for_stage(job, stage, lambda: ETL_STAGES[stage](job, folder))
    job_exit = send_signal(job, way, number, folder / "mlflow.db")
    return job_exit, etl_fault(job_exit, stage, number, folder, under_submit)


def train(folder: Path, stage: str, way: str, number: int, kind: str = "training") -> tuple[Exit, str]:
    """Send a signal to a training in a stage. Returns how it ended, and what is not as documented."""
    training_stage = TRAINING_STAGES[stage]
    settings: dict[str, Any] = {"step_seconds": 0.0, "epochs": 1, **training_stage.settings, **KINDS[kind]}
    job, config = start_training(folder, rows=EVALUATED * 4, **settings)
    wait_for_stage(job, stage, lambda: training_stage.is_reached(job, folder))
    job_exit = send_signal(job, way, number, folder / "mlflow.db")
    return job_exit, training_fault(job_exit, training_stage, number, folder, config)


def training_fault(job_exit: Exit, stage: Stage, number: int, folder: Path, config: Config) -> str:
    if message := fault(job_exit, number, folder, config):
        return message
    if "Failed to connect" in job_exit.printed:
        return "Ray went first"
    saved = steps_saved(config)
    return f"{saved} steps saved, and not {stage.saved}" if saved < stage.saved else ""


def run_all(folder: Path, seed: int, seconds: float) -> list[Outcome]:
    """Send each signal in each stage, as long as there is time: to the group, to spark-submit alone as well."""
    ways = [("ETL", stage, way) for stage in ETL_STAGES for way in ("to the process", "to its group")]
    ways += [(kind, stage, "to its group") for kind in KINDS for stage in TRAINING_STAGES]
    cases = [(*way, number) for way in ways for number in NUMBERS]
    until, outcomes = time.monotonic() + seconds, []
    for job, stage, way, number in random.Random(seed).sample(cases, len(cases)):
        if time.monotonic() < until:
            place = folder / str(len(outcomes))
            place.mkdir(parents=True)
            job_exit, message = etl(place, stage, way, number, under_submit=True) if job == "ETL" else train(place, stage, way, number, job)
            faults = "; ".join(filter(None, [message, delay(job_exit)]))
            name = f"{job}, {stage}: {signal.Signals(number).name} {way}"
            print(f"{name}: {job_exit.code} in {job_exit.seconds:.1f} s{faults and ': '}{faults}", flush=True)
            outcomes.append(Outcome(name, not faults, seconds=job_exit.seconds, note=faults))
    return outcomes

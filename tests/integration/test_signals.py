"""SIGINT and SIGTERM to real jobs, in each of their stages: the documented exit code and status, nothing lost, nothing left."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from chaos.etl import below
from chaos.processes import Job
from chaos.signals import fault, signalled, start_training, steps_saved
from people import write_pipeline
from sessions import of_session

pytestmark = pytest.mark.timeout(300)


def until(job: Job, reached: Callable[[], object]) -> None:
    while not reached():
        assert job.ended is None, job.tail(40)
        time.sleep(0.02)


def named(job: Job, name: str) -> bool:
    for number in of_session(job.process.pid):
        try:
            if name in psutil.Process(number).name():
                return True
        except psutil.NoSuchProcess:
            continue
    return False


EVALUATED = 3_200
"""Rows to validate: seven batches, of four shards for each of two workers."""
STEPS = EVALUATED * 4 // 64
LAST_STEP = f'"step": {STEPS},'.encode()
SAVED = {"a slow step": 2, "an evaluation": STEPS, "the model is filed": STEPS}
BEFORE = {"spark": "", "read": "checksums", "fit": "read", "write": "fit"}
"""The stage that has ended when one begins."""
SPARK_SUBMIT = ["-c", "import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", "spark-submit", "--master", "local[2]"]
STAGES: dict[str, Callable[[Job, Path], object]] = {
    "Ray starts": lambda job, folder: named(job, "raylet"),
    "workers start": lambda job, folder: " begins: " in job.log.read_text(),
    "a slow step": lambda job, folder: any(b'"step": 2,' in file.read_bytes() for file in folder.glob("records/*")),
    "an evaluation": lambda job, folder: any(LAST_STEP in file.read_bytes() for file in folder.glob("records/*")),
    "the model is filed": lambda job, folder: list(folder.glob("runs/*/weights.safetensors")),
}


@pytest.mark.parametrize(
    ("stage", "way", "number"),
    [
        ("Ray starts", "as timeout", signal.SIGTERM),
        ("workers start", "to its group", signal.SIGINT),
        ("a slow step", "as timeout", signal.SIGTERM),
        ("an evaluation", "to every process", signal.SIGTERM),
        ("the model is filed", "to the process", signal.SIGINT),
    ],
)
def test_p8_a_training_leaves_as_documented(tmp_path: Path, stage: str, way: str, number: int) -> None:
    seconds = {"a slow step": {"step_seconds": 2.0}, "an evaluation": {"evaluation_seconds": 1.0}}.get(stage, {})
    job, config = start_training(tmp_path, **{"step_seconds": 0.0, **seconds}, rows=EVALUATED * 4, epochs=1)
    until(job, lambda: STAGES[stage](job, tmp_path))
    left = signalled(job, way, number, tmp_path / "mlflow.db")
    assert fault(left, number, tmp_path, config) == "", left.printed
    assert steps_saved(config) >= SAVED.get(stage, 0), left.printed
    assert "Failed to connect" not in left.printed


@pytest.mark.parametrize(
    ("stage", "way", "number", "command"),
    [
        ("spark", "to its group", signal.SIGTERM, []),
        ("read", "to its group", signal.SIGINT, SPARK_SUBMIT),
        ("fit", "to the process", signal.SIGTERM, SPARK_SUBMIT),
        ("write", "as timeout", signal.SIGTERM, []),
    ],
)
def test_p8_etl_leaves_as_documented_and_removes_what_it_wrote(
    tmp_path: Path, stage: str, way: str, number: int, command: list[str]
) -> None:
    pipeline = write_pipeline(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")
    environment = {"PYSPARK_SUBMIT_ARGS": "--master local[2] --driver-memory 1g --conf spark.ui.enabled=false pyspark-shell"}
    job = Job([*command, "jobs/etl.py", str(pipeline)], tmp_path / "job.log", **environment)
    before = BEFORE[stage]
    until(job, lambda: re.search(rf"^{before} +[\d.]+ s$", job.log.read_text(), re.MULTILINE) if before else below(job, "java"))
    left = signalled(job, way, number, tmp_path / "mlflow.db")
    assert left.code in (128 + number, -number), left.printed
    # Of a Java driver that was asked to leave alone, and is gone before it says so, Python cannot tell that it was not killed.
    statuses = [["KILLED"], ["FAILED"]] if way == "to the process" else [["KILLED"]] if stage == "write" else [["KILLED"], []]
    assert left.statuses in statuses, left.printed
    assert "Traceback" not in left.printed, left.printed
    assert [path for path in tmp_path.glob("data/**/*") if path.is_file()] == []

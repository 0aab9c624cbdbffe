"""Batch prediction, killed at random moments; then the same command again, and the rows compared."""

import random
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from people import write_pipeline
from promotions import finished_run, untrained_weights

from chaos import etl
from chaos.processes import Job
from chaos.training import Outcome
from pipelines.api import open_predictions, read_config
from pipelines.errors import CorruptError, DatasetError

Rows = list[tuple[int, str, float]]
"""ID, prediction and probability of each row, by ID."""


@dataclass(frozen=True)
class Reference:
    """A job without a fault."""

    pipeline: Path
    model: str
    rows: Rows
    seconds: float


def start(pipeline: Path, model: str, output: Path, log: Path) -> Job:
    submit = "--master local[2] --conf spark.ui.enabled=false --driver-memory 1g pyspark-shell"
    command = ["jobs/predict.py", str(pipeline), "--model", model, "--output", str(output), "--keep", "id"]
    return Job(command, log, PYSPARK_SUBMIT_ARGS=submit)


def run_reference(folder: Path) -> Reference:
    """Write a pipeline with 9 files, train a model, and predict without a fault."""
    folder.mkdir()
    pipeline, uri = write_pipeline(folder, f"sqlite:///{folder}/mlflow.db", files=9), f"sqlite:///{folder}/mlflow.db"
    etl.run_reference(folder, uri)
    config = read_config(pipeline)
    _, model = finished_run(config, untrained_weights(config, seed=1))
    began = time.monotonic()
    job = start(pipeline, model, folder / "predictions", folder / "job.log")
    assert job.wait(etl.JOB_SECONDS) == 0, job.tail(40)
    return Reference(pipeline, model, read(folder / "predictions"), time.monotonic() - began)


def read(output: Path) -> Rows:
    """Raises DatasetError if there are no predictions, CorruptError if they are not whole."""
    columns = open_predictions(str(output)).to_table(columns=["id", "prediction", "probability_true"]).to_pydict()
    return sorted(zip(*columns.values(), strict=True))


def disturb(number: int, seed: int, folder: Path, reference: Reference) -> Outcome:
    """Kill a job and all of its processes, and say whether its output was whole or absent, and whole after the same command again."""
    folder.mkdir()
    chance, latest = random.Random(f"{seed}/predict/{number}"), reference.seconds
    for attempt in range(5):  # a job may be done before it is killed
        output, log = folder / f"output-{attempt}", folder / "job.log"
        job, began = start(reference.pipeline, reference.model, output, log), time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            job.wait(chance.uniform(0.3, 1.0) * latest)
            latest = time.monotonic() - began  # it is done, and the machine faster than before
        if job.ended is None:
            job.signal(signal.SIGKILL)
            job.wait(etl.JOB_SECONDS)
            note = f"after {time.monotonic() - began:.0f} s; {_state(output, reference.rows)}"
            second, moment = start(reference.pipeline, reference.model, output, log), time.monotonic()
            code = second.wait(etl.JOB_SECONDS)
            is_same = code == 0 and read(output) == reference.rows
            recovered = is_same and "OTHER" not in note
            return Outcome("prediction killed", recovered, time.monotonic() - moment, note=note if is_same else f"{note}; {second.tail()}")
    return Outcome("prediction killed", False, note="the job was always done before it was killed")


def _state(output: Path, expected: Rows) -> str:
    """Whether the rows are whole, absent or other ones."""
    try:
        rows = read(output)
    except CorruptError as error:
        return f"OTHER: {error}"
    except DatasetError:
        files = sum(file.is_file() for file in output.rglob("*"))
        return f"absent, with {files} files that no manifest names"
    return "whole" if rows == expected else "OTHER rows"

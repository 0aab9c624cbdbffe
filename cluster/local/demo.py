"""`make demo`: raw data to a tracked model on this machine, by the README's two commands.

    python cluster/local/demo.py [CONF.yaml [--section.setting VALUE ...]]      by default conf/digits.yaml

1. spark-submit jobs/etl.py makes a dataset version.
2. `ray_head` finds a Ray, or starts one.
3. ray job submit jobs/train.py trains, and its log is followed.
4. A summary is read back from the dataset's manifest and from MLflow.

What was started is stopped at the end, also when interrupted; an interrupted training run ends as KILLED.
"""

import asyncio
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from mlflow import MlflowClient
from ray.job_submission import JobStatus, JobSubmissionClient
from ray_head import authorization, process, ray_address

from pipelines.config import Config, from_command_line
from pipelines.dataset.versions import open_version

JOB_STOP_SECONDS = 30


def main(arguments: list[str]) -> None:
    os.environ.setdefault("LOCKSTEP_HOME", str(Path.cwd()))
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark"))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    etl_seconds = timed(etl, arguments)
    with ray_address() as address:
        train_seconds = timed(train, arguments, address)
    summarise(from_command_line("make demo", arguments), etl_seconds, train_seconds)


def timed(step: Callable[..., None], *arguments: Any) -> float:
    """Seconds that a step took."""
    start = time.monotonic()
    step(*arguments)
    return time.monotonic() - start


def etl(arguments: list[str]) -> None:
    command = ["spark-submit", "jobs/etl.py", *arguments]
    show(command)
    with process(command, stop=signal.SIGINT) as running:
        if code := running.wait():
            sys.exit(code)


def train(arguments: list[str], address: str) -> None:
    job = ["--working-dir", ".", "--", "python", "jobs/train.py", *arguments]
    show(["ray", "job", "submit", *job])
    name = f"lockstep-{os.getpid()}-{time.time_ns()}"
    passed = {key: value for key, value in os.environ.items() if key.startswith(("LOCKSTEP_", "MLFLOW_", "RAY_ADDRESS"))}
    environment = {"env_vars": {**passed, "RAY_JOB_STOP_WAIT_TIME_S": str(JOB_STOP_SECONDS)}}
    options = ["--address", address, "--submission-id", name, "--no-wait", "--runtime-env-json", json.dumps(environment)]
    client = JobSubmissionClient(address, headers=authorization())
    try:
        submitted = subprocess.run(["ray", "job", "submit", *options, *job], capture_output=True, text=True, check=False)
        if submitted.returncode:
            sys.exit(submitted.stdout + submitted.stderr)
        asyncio.run(print_log(client, name))
    finally:
        stop(client, name)
    # `ray job submit` itself would exit with 0 for a job that was stopped, and with 1 for any failure.
    info = client.get_job_info(name)
    if info.status != JobStatus.SUCCEEDED:
        sys.exit(info.driver_exit_code or f"{info.status}: {info.message}")


def stop(client: JobSubmissionClient, name: str) -> None:
    """Stop the job if it has begun and not ended: the interrupt may have come at any time."""
    if name in [job.submission_id for job in client.list_jobs()] and not client.get_job_status(name).is_terminal():
        client.stop_job(name)
        while not client.get_job_status(name).is_terminal():
            time.sleep(0.5)


async def print_log(client: JobSubmissionClient, job: str) -> None:
    async for lines in client.tail_job_logs(job):
        print(lines, end="", flush=True)


def summarise(config: Config, etl_seconds: float, train_seconds: float) -> None:
    """Print what the dataset's manifest and the newest run on it say."""
    manifest = open_version(config.dataset.path, config.data_identity).manifest
    client = MlflowClient(config.tracking.uri)
    experiment = client.get_run(manifest.run_id).info.experiment_id
    of_dataset = f"tags.`dataset.run_id` = '{manifest.run_id}' AND attributes.status = 'FINISHED'"
    run = client.search_runs([experiment], of_dataset, order_by=["attributes.end_time DESC"], max_results=1)[0]
    rows = ", ".join(f"{summary.rows:,} {split}" for split, summary in manifest.splits.items())
    tested = {name.removeprefix("test/"): value for name, value in sorted(run.data.metrics.items()) if name.startswith("test/")}
    print(f"""
rows      {rows}; {sum(manifest.quarantined.values()):,} refused
seconds   {etl_seconds:.0f} ETL, {train_seconds:.0f} training, starts included
test      {", ".join(f"{name} {value:.4f}" for name, value in tested.items())}
run       {run.info.run_id}
browse    make ui""")


def show(command: list[str]) -> None:
    print(f"$ {shlex.join(command)}", flush=True)


def interrupted(number: int, _: FrameType | None) -> None:
    """Leave through every `finally`, once: a second signal must not cut those short."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of Ray's client
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, interrupted)
    main(sys.argv[1:] or ["conf/digits.yaml"])

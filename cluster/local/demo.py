"""`make demo`: raw data to a tracked model on this machine, by the README's two commands.

    python cluster/local/demo.py [CONF.yaml [--section.setting VALUE ...]]      by default conf/digits.yaml

1. spark-submit jobs/etl.py makes a dataset version.
2. jobs/train.py trains on a Ray of its own; or cluster/submit.py submits it, where a Ray runs already.
3. The last line has the seconds of both.

Everything that was started is stopped at the end, also after an interrupt; an interrupted training run ends as KILLED.
"""

import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray_head import answers, authorization, running_ray, stop_jobs
from sessions import leave_on_signals, process

from pipelines.runtime.output import filtered_errors
from pipelines.spark.java_options import set_java_options

SAVE_SECONDS = 150.0
"""Time for an interrupted training to save, as cluster/submit.py gives it."""


def main(arguments: list[str]) -> None:
    os.environ.setdefault("LOCKSTEP_HOME", str(Path.cwd()))
    set_java_options()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    etl_seconds = measure_seconds(etl, arguments)
    if address := running_ray():
        train_seconds = measure_seconds(submit_training, arguments, address)
    else:
        train_seconds = measure_seconds(train, arguments)
    print(f"seconds   {etl_seconds:.0f} ETL, {train_seconds:.0f} training, starts included")


def measure_seconds(step: Callable[..., None], *arguments: Any) -> float:
    """Run a step, and return the seconds that it took."""
    start = time.monotonic()
    step(*arguments)
    return time.monotonic() - start


def etl(arguments: list[str]) -> None:
    command = ["spark-submit", "jobs/etl.py", *arguments]
    show(command)
    with filtered_errors() as (errors, lines):
        with process(command, stop=signal.SIGINT, errors=errors) as running:
            code = running.wait()
    if code:
        sys.stderr.write(lines.routine_lines.decode(errors="replace"))
        sys.exit(code)


def train(arguments: list[str]) -> None:
    command = ["python", "jobs/train.py", *arguments]
    show(command)
    with process(command, stop=signal.SIGTERM, stop_seconds=SAVE_SECONDS) as running:
        code = running.wait()
    if code:
        sys.exit(code)


def submit_training(arguments: list[str], address: str) -> None:
    name = f"lockstep-{os.getpid()}-{time.time_ns()}"
    job = ["--", "python", "jobs/train.py", *arguments]
    show(["python", "cluster/submit.py", *job])
    try:
        with process([sys.executable, "cluster/submit.py", "--name", name, *job], stop=signal.SIGTERM) as running:
            code = running.wait()
    finally:
        if answers(address, authorization()):  # the jobs of a Ray that has ended are gone with it
            stop_jobs(address, name)
    if code:
        sys.exit(code)


def show(command: list[str]) -> None:
    print(f"$ {shlex.join(command)}", flush=True)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # from Ray's client
    leave_on_signals()
    main(sys.argv[1:] or ["conf/digits.yaml"])

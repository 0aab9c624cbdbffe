"""Submits a job to the Ray cluster, and exits with the job's exit code: `ray job submit` exits with 0 for a stopped job.

    python cluster/submit.py [--name NAME] [--working-dir .] -- python jobs/train.py conf/adult.yaml --train.workers 4
    python cluster/submit.py --follow NAME

It shows the job's output until the job ends; the exit code of a stopped job is 143. A job continues after Ctrl-C, or when the
terminal closes: `--follow NAME` shows its output again, `ray job stop NAME` stops it.

RAY_API_SERVER_ADDRESS names the cluster. Environment variables that begin with LOCKSTEP_ or MLFLOW_ are passed to the job,
except secrets, which the job's description would show: set those in the environment of Ray's nodes.
"""

import argparse
import asyncio
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import NoReturn

from aiohttp import ClientError
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from pipelines.config.paths import home
from pipelines.config.secrets import has_login
from pipelines.runtime.output import exit_when_reader_leaves

PASSED = ("LOCKSTEP_", "MLFLOW_", "RAY_ADDRESS")
"""RAY_ADDRESS too, since with several Rays on a machine, a job does not know which one it runs in."""
EXCLUDED = [".git", ".venv", "venv", "__pycache__"]
"""Folders that Ray leaves out of an upload by default, besides those that .gitignore and .rayignore name."""
SECRETS = ("PASSWORD", "TOKEN", "SECRET", "KEY", "CREDENTIAL", "AUTH")
ROUTINE = re.compile(r"\S+ \S+\tINFO job_manager\.py:\d+ -- Runtime env is setting up\.|Running entrypoint for job ")
"""How lines of Ray's begin that each job has, and that say nothing about it; `ray job logs NAME` has them too."""
STOP_SECONDS = "150"
"""Time between SIGTERM and SIGKILL, in which a stopped training saves; Ray's default is 3."""


def main(arguments: list[str]) -> NoReturn:
    parser = argparse.ArgumentParser("cluster/submit.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=f"lockstep-{time.strftime('%m%d-%H%M%S')}-{os.getpid()}")
    parser.add_argument("--working-dir", default=".")
    parser.add_argument("--follow", metavar="NAME", help="a job that was submitted before")
    parser.add_argument("command", nargs="*", help="after --, as in `ray job submit`")
    options = parser.parse_args(arguments)
    if bool(options.follow) == bool(options.command):
        parser.error("give a command after --, or --follow NAME")
    client = connect()
    name = options.follow or submit(client, options.name, options.command, options.working_dir)
    try:
        end(client, name)
    except KeyboardInterrupt:
        print(f"\nthe job continues; to show its output:\n  python cluster/submit.py --follow {name}\nto stop it:\n  ray job stop {name}")
        sys.exit(128 + signal.SIGINT)


def connect() -> JobSubmissionClient:
    address = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or "http://127.0.0.1:8265"
    try:
        return JobSubmissionClient(address)
    except (RuntimeError, OSError, AuthenticationError) as error:
        sys.exit(
            f"no Ray accepts jobs at {address}: {first_line(error)}; set RAY_API_SERVER_ADDRESS to its address, and "
            "RAY_AUTH_TOKEN_PATH to the file of its token"
        )


def submit(client: JobSubmissionClient, name: str, command: list[str], folder: str) -> str:
    """Submit the command with the folder, without the files that .gitignore and .rayignore name. Returns the job's name."""
    passed = {key: value for key, value in os.environ.items() if key.startswith(PASSED) and not is_secret(key)}
    if logins := [key for key, value in passed.items() if has_login(value)]:
        sys.exit(
            f"{', '.join(logins)} contains a password or a token, which the job's description would show; "
            "set MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN on Ray's nodes"
        )
    if passed.get("LOCKSTEP_HOME"):
        passed["LOCKSTEP_HOME"] = str(home())  # since the job runs in another folder, a copy of the code
    variables = {**passed, "LOCKSTEP_GIT_COMMIT": git_commit(folder), "LOCKSTEP_TERMINAL": "1" if sys.stdout.isatty() else ""}
    os.environ.setdefault("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "")  # they are in EXCLUDED, and Ray would warn of each
    environment = {
        "working_dir": folder,
        "excludes": EXCLUDED,
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": STOP_SECONDS, **variables},
    }
    try:
        client.submit_job(entrypoint=shlex.join(command), submission_id=name, runtime_env=environment)
    except (RuntimeError, ValueError, OSError) as error:
        sys.exit(f"Ray did not accept job {name}: {first_line(error)}")
    print(f"job {name}: {shlex.join(command)}", flush=True)
    return name


def git_commit(folder: str) -> str:
    """The commit of the submitted code, whose copy has no history, with `-dirty` if files differ; empty without git."""
    describe = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(["git", "-C", folder, *describe], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def first_line(error: BaseException | str) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def is_secret(variable: str) -> bool:
    return any(word in variable for word in SECRETS)


def end(client: JobSubmissionClient, name: str) -> NoReturn:
    """Show the job's output until it ends, and exit with its exit code."""
    try:
        client.get_job_info(name)  # first, since Ray's dashboard logs our token when it is asked for the output of an unknown job
        asyncio.run(show_log(client, name))
        while not (job := client.get_job_info(name)).status.is_terminal():
            time.sleep(0.5)
    except (RuntimeError, OSError, ClientError) as error:
        sys.exit(f"Ray does not report on job {name}: {first_line(error)}; `ray job list` shows its jobs")
    if job.status == JobStatus.STOPPED:
        print(f"job {name} was stopped", file=sys.stderr)
        sys.exit(128 + signal.SIGTERM)
    if job.status != JobStatus.SUCCEEDED:
        print(f"job {name}: {job.status}: {first_line(job.message or 'Ray gives no message')}", file=sys.stderr)
    sys.exit(0 if job.status == JobStatus.SUCCEEDED else job.driver_exit_code or 1)


async def show_log(client: JobSubmissionClient, name: str) -> None:
    async for lines in client.tail_job_logs(name):
        print("".join(line for line in lines.splitlines(keepends=True) if not ROUTINE.match(line)), end="", flush=True)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of Ray's client
    with exit_when_reader_leaves():
        main(sys.argv[1:])

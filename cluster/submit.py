"""A job for the Ray cluster, with its true end as this command's: `ray job submit` calls a stopped job a success.

    python cluster/submit.py [--name NAME] [--working-dir .] -- python jobs/train.py conf/adult.yaml --train.workers 4
    python cluster/submit.py --follow NAME

The job's output is shown until it ends; the exit code is the job's own, 143 if it was stopped. Ctrl-C leaves the job
running, as does a terminal that goes away: `--follow NAME` finds it again, `ray job stop NAME` stops it.

RAY_API_SERVER_ADDRESS names the cluster. Variables that begin with LOCKSTEP_ or MLFLOW_ go with the job, but for
secrets, which its description would show: those belong into the environment of Ray's nodes.
"""

import argparse
import asyncio
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from typing import NoReturn

from aiohttp import ClientError
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus, JobSubmissionClient

from pipelines.config.secrets import holds_login

PASSED = ("LOCKSTEP_", "MLFLOW_", "RAY_ADDRESS")
"""With several Rays on a machine, what runs in one of them has to be told which is its own."""
EXCLUDED = [".git", ".venv", "venv", "__pycache__"]
"""What Ray leaves out of an uploaded folder by default, beside what .gitignore and .rayignore name."""
SECRETS = ("PASSWORD", "TOKEN", "SECRET", "KEY", "CREDENTIAL", "AUTH")
STOP_SECONDS = "150"
"""Between SIGTERM and SIGKILL, for a stopped training to save; Ray's own are 3."""


def main(arguments: list[str]) -> NoReturn:
    parser = argparse.ArgumentParser("cluster/submit.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default=f"lockstep-{time.strftime('%m%d-%H%M%S')}-{os.getpid()}")
    parser.add_argument("--working-dir", default=".")
    parser.add_argument("--follow", metavar="NAME", help="a job that was submitted before")
    parser.add_argument("command", nargs="*", help="after --, as in `ray job submit`")
    given = parser.parse_args(arguments)
    if bool(given.follow) == bool(given.command):
        parser.error("give a command after --, or --follow NAME")
    client = connected()
    name = given.follow or submit(client, given.name, given.command, given.working_dir)
    try:
        end(client, name)
    except KeyboardInterrupt:
        print(f"\nthe job goes on; it is found by\n  python cluster/submit.py --follow {name}\nand stopped by\n  ray job stop {name}")
        sys.exit(128 + signal.SIGINT)


def connected() -> JobSubmissionClient:
    address = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or "http://127.0.0.1:8265"
    try:
        return JobSubmissionClient(address)
    except (RuntimeError, OSError, AuthenticationError) as error:
        sys.exit(f"no Ray takes jobs at {address}: {first_line(error)}; RAY_API_SERVER_ADDRESS names it, RAY_AUTH_TOKEN_PATH its token")


def submit(client: JobSubmissionClient, name: str, command: list[str], folder: str) -> str:
    """Send it, and the folder with it, less what .gitignore and .rayignore name."""
    passed = {key: value for key, value in os.environ.items() if key.startswith(PASSED) and not is_secret(key)}
    if logins := [key for key, value in passed.items() if holds_login(value)]:
        sys.exit(
            f"{', '.join(logins)}: holds a password or a token, which the job's description would show; "
            "set MLFLOW_TRACKING_PASSWORD or MLFLOW_TRACKING_TOKEN on Ray's nodes"
        )
    own = {"LOCKSTEP_GIT_COMMIT": git_commit(folder), "LOCKSTEP_TERMINAL": "1" if sys.stdout.isatty() else ""}
    os.environ.setdefault("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "")  # they are EXCLUDED, and Ray would warn of each
    environment = {"working_dir": folder, "excludes": EXCLUDED, "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": STOP_SECONDS, **passed, **own}}
    try:
        client.submit_job(entrypoint=shlex.join(command), submission_id=name, runtime_env=environment)
    except (RuntimeError, ValueError) as error:
        sys.exit(f"job {name} was not taken: {first_line(error)}")
    print(f"job {name}: {shlex.join(command)}", flush=True)
    return name


def git_commit(folder: str) -> str:
    """Of the code that is sent, whose copy has no history, and `-dirty` if it differs; empty where there is no git."""
    described = ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(["git", "-C", folder, *described], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def first_line(told: BaseException | str) -> str:
    return next(iter(str(told).splitlines()), type(told).__name__)


def is_secret(variable: str) -> bool:
    return any(word in variable for word in SECRETS)


def end(client: JobSubmissionClient, name: str) -> NoReturn:
    """Show what the job prints until it ends, and leave with its exit code."""
    try:
        client.get_job_info(name)  # asked for the log of a job that it does not have, Ray's dashboard logs our token
        asyncio.run(show_log(client, name))
        while not (info := client.get_job_info(name)).status.is_terminal():
            time.sleep(0.5)
    except (RuntimeError, OSError, ClientError) as error:
        sys.exit(f"Ray does not tell of job {name}: {first_line(error)}; `ray job list` shows the jobs it has")
    if info.status == JobStatus.STOPPED:
        print(f"job {name} was stopped", file=sys.stderr)
        sys.exit(128 + signal.SIGTERM)
    if info.status != JobStatus.SUCCEEDED:
        print(f"job {name}: {info.status}: {first_line(info.message or 'Ray says no more')}", file=sys.stderr)
    sys.exit(0 if info.status == JobStatus.SUCCEEDED else info.driver_exit_code or 1)


async def show_log(client: JobSubmissionClient, name: str) -> None:
    async for lines in client.tail_job_logs(name):
        print(lines, end="", flush=True)


if __name__ == "__main__":
    logging.disable(logging.INFO)  # of Ray's client
    main(sys.argv[1:])

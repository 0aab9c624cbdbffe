"""A Ray on this machine to submit jobs to: one that runs already, or one that is started for the duration of a `with` block."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from credentials import write
from http_json import get_json
from loopback import LOOPBACK, free_port
from ray.job_submission import JobSubmissionClient
from sessions import process

START_SECONDS = 90
_OPEN = "ray"
"""Name of the folder that Ray gets, to which it lets every user write: so it is inside one that only this user can enter."""


@contextmanager
def ray_address() -> Iterator[str]:
    """The address of a job server, for `ray job submit --address`. Sets this process's RAY_… variables for Ray's commands.

    It is the Ray that RAY_API_SERVER_ADDRESS names, by default the one on the usual port, provided that it has this version of
    Ray and accepts this user's token, or needs none. Otherwise a new one is started, on free ports and with a token.
    """
    named = os.environ.get("RAY_API_SERVER_ADDRESS")
    address = named or "http://127.0.0.1:8265"
    if answers(address, authorization()):
        os.environ["RAY_AUTH_MODE"] = "disabled" if answers(address, {}) else "token"
        os.environ["RAY_API_SERVER_ADDRESS"] = address
        print(f"using the Ray at {address}")
        yield address
    elif named:
        sys.exit(f"RAY_API_SERVER_ADDRESS is {named}, where no Ray {version('ray')} accepts this user's token; correct it or unset it")
    else:
        with own_ray() as address:
            yield address


@contextmanager
def own_ray() -> Iterator[str]:
    """Start a Ray with token authentication, in a new folder."""
    # In /tmp, and not in TMPDIR: Ray's sockets are in this folder, and the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="lockstep-", dir="/tmp"))
    token = write(folder / "token", secrets.token_hex(32))
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    os.environ.setdefault("RAY_worker_niceness", "0")  # the default of 15 would give everything else priority over the training
    for name in ("RAY_AUTH_TOKEN", "RAY_ADDRESS"):
        os.environ.pop(name, None)
    port = free_port()
    command = node_command(max(2, os.cpu_count() or 1), *head_options(folder / _OPEN, port, 0))
    try:
        with (folder / "ray.log").open("w") as log, process(command, log, stop=signal.SIGKILL) as ray:
            # With several Rays on a machine, a job does not know which one it runs in.
            os.environ["RAY_ADDRESS"] = wait_for_address(f"http://127.0.0.1:{port}", ray, folder)
            # Without this variable, Ray's job client prefers RAY_ADDRESS to the address that it is given.
            os.environ["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{port}"
            try:
                yield os.environ["RAY_API_SERVER_ADDRESS"]
            finally:
                if ray.poll() is not None:
                    print(f"Ray ended by itself; {end_of_log(folder)}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def node_command(cpus: int, *options: str, address: str = LOOPBACK) -> list[str]:
    """The `ray start` command of a node that listens on `address`, by default loopback. A head is started before other nodes."""
    on_loopback = [sys.executable, str(Path(__file__).with_name("ray_on_loopback.py"))]
    program = on_loopback if address == LOOPBACK else [str(Path(sys.executable).with_name("ray"))]
    node_options = [f"--node-ip-address={address}", f"--num-cpus={cpus}", "--object-store-memory=200000000", "--log-color=false"]
    return [*program, "start", "--block", "--disable-usage-stats", "--dashboard-agent-listen-port=0", *node_options, *options]


def head_options(folder: Path, dashboard_port: int, port: int) -> list[str]:
    """Options of a head with sockets and logs in `folder`, which Ray opens to all users. Port 0 stands for a free one."""
    ports = [f"--port={port}", f"--dashboard-port={dashboard_port}", f"--ray-client-server-port={free_port()}"]
    return ["--head", f"--temp-dir={folder}", *ports]


def answers(address: str, headers: dict[str, str]) -> bool:
    """Whether a Ray of our version answers and accepts the headers."""
    return get_json(f"{address}/api/version", **headers).get("ray_version") == version("ray")


def authorization() -> dict[str, str]:
    """The header with the token that Ray's own commands would send."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray/auth_token")
    token = os.environ.get("RAY_AUTH_TOKEN") or (path.read_text().strip() if path.exists() else "")
    return {"Authorization": f"Bearer {token}"}


def wait_for_address(job_server: str, ray: subprocess.Popen, folder: Path) -> str:
    """Wait until Ray has started, and return the address that drivers connect to."""
    deadline, address = time.monotonic() + START_SECONDS, folder / _OPEN / "ray_current_cluster"
    while not (address.exists() and answers(job_server, authorization())):
        if ray.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"Ray did not start; {end_of_log(folder)}")
        time.sleep(0.2)
    return address.read_text().strip()


def end_of_log(folder: Path) -> str:
    return f"the end of its log:\n{(folder / 'ray.log').read_text()[-2000:]}"


def stop_jobs(address: str, only: str = "") -> None:
    """Stop all running jobs of a Ray, or the `only` one, and wait until they have ended."""
    client = JobSubmissionClient(address, headers=authorization())
    running = [job.submission_id for job in client.list_jobs() if not job.status.is_terminal()]
    stopped = [name for name in running if name and only in ("", name)]
    for name in stopped:
        print(f"stopping job {name}, which may save first", flush=True)
        client.stop_job(name)
    for name in stopped:
        while not client.get_job_status(name).is_terminal():
            time.sleep(0.5)

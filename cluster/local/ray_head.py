"""A Ray of this machine to send a job to: the one that is running already, or one that lives as long as a `with` block."""

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

from asking import asked
from credentials import write
from loopback import LOOPBACK, free_port
from ray.job_submission import JobSubmissionClient
from sessions import process

START_SECONDS = 90
_OPEN = "ray"
"""Ray lets every user of the machine write to the folder that it is given: so it lies in one that only this user enters."""


@contextmanager
def ray_address() -> Iterator[str]:
    """Address of the job server, for `ray job submit --address`; sets this process's RAY_… variables for Ray's commands.

    RAY_API_SERVER_ADDRESS names a running one, else the usual port is asked. Only one that has this version of Ray and
    takes this user's token, or asks for none, will do; otherwise one of our own is started, on free ports, with a token.
    """
    named = os.environ.get("RAY_API_SERVER_ADDRESS")
    address = named or "http://127.0.0.1:8265"
    if answers(address, authorization()):
        os.environ["RAY_AUTH_MODE"] = "disabled" if answers(address, {}) else "token"
        os.environ["RAY_API_SERVER_ADDRESS"] = address
        print(f"using the Ray at {address}")
        yield address
    elif named:
        sys.exit(f"RAY_API_SERVER_ADDRESS is {named}, where no Ray {version('ray')} takes this user's token; correct it or unset it")
    else:
        with own_ray() as address:
            yield address


@contextmanager
def own_ray() -> Iterator[str]:
    """A Ray with token authentication, in a folder of its own."""
    # Ray's sockets lie in this folder, and a socket's path has at most 107 characters: so not below TMPDIR.
    folder = Path(tempfile.mkdtemp(prefix="lockstep-", dir="/tmp"))
    token = write(folder / "token", secrets.token_hex(32))
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: everything else would go before the training
    for name in ("RAY_AUTH_TOKEN", "RAY_ADDRESS"):
        os.environ.pop(name, None)
    port = free_port()
    command = node_command(max(2, os.cpu_count() or 1), *head_options(folder / _OPEN, port, 0))
    try:
        with (folder / "ray.log").open("w") as log, process(command, log, stop=signal.SIGKILL) as ray:
            # With several Rays on a machine, what runs in this one has to be told which is its own.
            os.environ["RAY_ADDRESS"] = started_address(f"http://127.0.0.1:{port}", ray, folder)
            # Ray's job client prefers RAY_ADDRESS to the address it is given, unless it is told here.
            os.environ["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{port}"
            yield os.environ["RAY_API_SERVER_ADDRESS"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def node_command(cpus: int, *options: str, address: str = LOOPBACK) -> list[str]:
    """`ray start` of a node that is reached at `address` alone, by default by this machine. There may be several, a head first."""
    on_loopback = [sys.executable, str(Path(__file__).with_name("ray_on_loopback.py"))]
    program = on_loopback if address == LOOPBACK else [str(Path(sys.executable).with_name("ray"))]
    own = [f"--node-ip-address={address}", f"--num-cpus={cpus}", "--object-store-memory=200000000", "--log-color=false"]
    return [*program, "start", "--block", "--disable-usage-stats", "--dashboard-agent-listen-port=0", *own, *options]


def head_options(folder: Path, dashboard_port: int, port: int) -> list[str]:
    """Of a head whose sockets and logs lie in `folder`, which Ray opens to everyone; port 0 is a free one."""
    ports = [f"--port={port}", f"--dashboard-port={dashboard_port}", f"--ray-client-server-port={free_port()}"]
    return ["--head", f"--temp-dir={folder}", *ports]


def answers(address: str, headers: dict[str, str]) -> bool:
    """Whether a Ray of our version is there and lets us in."""
    return asked(f"{address}/api/version", **headers).get("ray_version") == version("ray")


def authorization() -> dict[str, str]:
    """The header with the token that Ray's own commands would send."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray/auth_token")
    token = os.environ.get("RAY_AUTH_TOKEN") or (path.read_text().strip() if path.exists() else "")
    return {"Authorization": f"Bearer {token}"}


def started_address(job_server: str, ray: subprocess.Popen, folder: Path) -> str:
    """Wait until Ray has started; the address that its drivers connect to."""
    deadline, address = time.monotonic() + START_SECONDS, folder / _OPEN / "ray_current_cluster"
    while not (address.exists() and answers(job_server, authorization())):
        if ray.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"Ray did not start; its last words:\n{(folder / 'ray.log').read_text()[-2000:]}")
        time.sleep(0.2)
    return address.read_text().strip()


def stop_jobs(address: str, only: str = "") -> None:
    """Stop the jobs of a Ray that have begun and not ended, or the one of that name, and wait for their ends."""
    client = JobSubmissionClient(address, headers=authorization())
    found = [job.submission_id for job in client.list_jobs() if not job.status.is_terminal()]
    stopped = [name for name in found if name and only in ("", name)]
    for name in stopped:
        print(f"stopping job {name}, which may save first", flush=True)
        client.stop_job(name)
    for name in stopped:
        while not client.get_job_status(name).is_terminal():
            time.sleep(0.5)

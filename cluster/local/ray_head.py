"""A Ray of this machine to send a job to: the one that is running already, or one that lives as long as a `with` block."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import Request, urlopen

import psutil

START_SECONDS = 90
STOP_SECONDS = 15


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
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token))
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: everything else would go before the training
    for name in ("RAY_AUTH_TOKEN", "RAY_ADDRESS"):
        os.environ.pop(name, None)
    port, cpus = free_port(), max(2, os.cpu_count() or 1)
    options = ["--disable-usage-stats", f"--temp-dir={folder}", "--object-store-memory=200000000", f"--num-cpus={cpus}"]
    ports = [f"--dashboard-port={port}", "--port=0", "--dashboard-agent-listen-port=0", f"--ray-client-server-port={free_port()}"]
    command = ["ray", "start", "--head", "--block", *ports, *options]
    try:
        with (folder / "ray.log").open("w") as log, process(command, log, stop=signal.SIGKILL) as ray:
            # With several Rays on a machine, what runs in this one has to be told which is its own.
            os.environ["RAY_ADDRESS"] = started_address(f"http://127.0.0.1:{port}", ray, folder)
            # Ray's job client prefers RAY_ADDRESS to the address it is given, unless it is told here.
            os.environ["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{port}"
            yield os.environ["RAY_API_SERVER_ADDRESS"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def answers(address: str, headers: dict[str, str]) -> bool:
    """Whether a Ray of our version is there and lets us in."""
    request = Request(f"{address}/api/version", headers=headers)
    try:
        with urlopen(request, timeout=5) as reply:
            return json.load(reply).get("ray_version") == version("ray")
    except (URLError, OSError, ValueError):
        return False


def authorization() -> dict[str, str]:
    """The header with the token that Ray's own commands would send."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray/auth_token")
    token = os.environ.get("RAY_AUTH_TOKEN") or (path.read_text().strip() if path.exists() else "")
    return {"Authorization": f"Bearer {token}"}


def started_address(job_server: str, ray: subprocess.Popen, folder: Path) -> str:
    """Wait until Ray has started; the address that its drivers connect to."""
    deadline, address = time.monotonic() + START_SECONDS, folder / "ray_current_cluster"
    while not (address.exists() and answers(job_server, authorization())):
        if ray.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"Ray did not start; its last words:\n{(folder / 'ray.log').read_text()[-2000:]}")
        time.sleep(0.2)
    return address.read_text().strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def process(command: Sequence[str], output: IO[str] | None = None, *, stop: signal.Signals) -> Iterator[subprocess.Popen]:
    """Run a command in a session of its own: when the block ends, what is left of that session ends, and nothing else."""
    started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT if output else None, start_new_session=True)
    try:
        yield started
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(started.pid, stop)
            started.wait(STOP_SECONDS)
        while left := of_session(started.pid):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)


def of_session(session: int) -> list[int]:
    """Living processes of a session; Ray's workers have process groups of their own in it."""
    found = []
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found

"""A Ray that someone else has started: a head with a token, for jobs to be submitted to."""

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
from pathlib import Path

from credentials import write
from loopback import free_port
from ray_head import answers, authorization, head_options, node_command
from sessions import process

START_SECONDS = 90
_OPEN = "ray"
"""Name of the folder that Ray gets, to which it lets every user write: so it is inside one that only this user can enter."""


@contextmanager
def other_ray() -> Iterator[str]:
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

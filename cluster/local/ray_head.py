"""The Ray on this machine that runs already: whether it answers, its jobs, and the command that starts its nodes."""

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

from http_json import get_json
from loopback import LOOPBACK, free_port


def running_ray() -> str:
    """The address of a Ray that runs already, for `ray job submit --address`; empty if there is none. Sets this process's RAY_… variables
    for Ray's commands.

    It is the Ray that RAY_API_SERVER_ADDRESS names, by default the one on the usual port, provided that it has this version of Ray and
    accepts this user's token, or needs none. Exits with an error if it is named and does not.
    """
    named = os.environ.get("RAY_API_SERVER_ADDRESS")
    address = named or "http://127.0.0.1:8265"
    if answers(address, authorization()):
        os.environ["RAY_AUTH_MODE"] = "disabled" if answers(address, {}) else "token"
        os.environ["RAY_API_SERVER_ADDRESS"] = address
        print(f"using the Ray at {address}")
        return address
    if named:
        sys.exit(f"RAY_API_SERVER_ADDRESS is {named}, where no Ray {version('ray')} accepts this user's token; correct it or unset it")
    return ""


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
    token = os.environ.get("RAY_AUTH_TOKEN") or (path.read_text(encoding="utf-8").strip() if path.exists() else "")
    return {"Authorization": f"Bearer {token}"}


def stop_jobs(address: str, only: str = "") -> None:
    """Stop all running jobs of a Ray, or the `only` one, and wait until they have ended."""
    from ray.job_submission import JobSubmissionClient  # noqa: PLC0415, which takes a second

    client = JobSubmissionClient(address, headers=authorization())
    running = [job.submission_id for job in client.list_jobs() if not job.status.is_terminal()]
    stopped = [name for name in running if name and only in ("", name)]
    for name in stopped:
        print(f"stopping job {name}, which may save first", flush=True)
        client.stop_job(name)
    for name in stopped:
        while not client.get_job_status(name).is_terminal():
            time.sleep(0.5)

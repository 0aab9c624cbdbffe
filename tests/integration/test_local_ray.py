"""A Ray that a training starts for itself is this machine's alone, and this user's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from pipelines.errors import TrainingError
from pipelines.launch.own_ray import _check_loopback


def run_program(program: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that starts a Ray of its own in a new home."""
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("RAY_")}, "HOME": str(home)}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=180, check=False)


LISTENING = """
import json
from contextlib import suppress
from pathlib import Path

import psutil
import ray

from pipelines.config.train.train import Train
from pipelines.launch.cluster import cluster

addresses = set()
with cluster(Train()):
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            addresses |= {socket.laddr.ip for socket in process.net_connections("inet") if socket.status == psutil.CONN_LISTEN}
    folder = Path(ray._private.worker._global_node.get_session_dir_path())
    private = [str(path) for path in folder.parents if path.stat().st_mode & 0o77 == 0]
print(json.dumps({"addresses": sorted(addresses), "private": private, "left": folder.exists()}))
"""


def test_nobody_else_reaches_it_or_reads_what_it_keeps(tmp_path: Path) -> None:
    process = run_program(LISTENING, tmp_path)
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert "127.0.0.1" in report["addresses"] and set(report["addresses"]) <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert len(report["private"]) == 1, "Ray lets everyone write to its own folders, so they lie in one of mode 700"
    assert not report["left"]
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in (tmp_path / ".ray").rglob("*")}
    assert ((tmp_path / ".ray").stat().st_mode & 0o777, modes) == (0o700, {".ray/auth_token": 0o600})


WAITING = """
import json
import os
import sys
import time

import psutil
import ray

from pipelines.config.train.train import Train
from pipelines.launch.cluster import cluster
from pipelines.launch.own_ray import is_own

def workers():
    commands = [child.cmdline() for child in psutil.Process().children(recursive=True)]
    return sum(any(word.endswith("default_worker.py") or word.startswith("ray::IDLE") for word in command) for command in commands)

def look():
    return ["pipelines.launch.worker" in sys.modules, os.environ["MALLOC_ARENA_MAX"], os.environ["RAY_TRAIN_COLLECTIVE_TIMEOUT_S"]]

os.environ["RAY_TRAIN_COLLECTIVE_TIMEOUT_S"] = "77"
os.environ["MALLOC_ARENA_MAX"] = "8"
with cluster(Train(workers=1)):
    deadline = time.monotonic() + 60
    while not (waiting := workers()) and time.monotonic() < deadline:  # Ray starts it after `ray.init`
        time.sleep(0.1)
    report = {"waiting": waiting, "task": ray.get(ray.remote(look).remote()), "own": is_own(), "here": os.environ.get("MALLOC_ARENA_MAX")}
print(json.dumps({**report, "own_later": is_own()}))
"""


@pytest.mark.full
def test_processes_with_what_a_worker_needs_wait_for_it(tmp_path: Path) -> None:
    """Each worker costs a process, and no other has imported torch: on a machine of many CPUs, Ray would start as many."""
    process = run_program(WAITING, tmp_path)
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout.splitlines()[-1])
    assert report == {"waiting": 1, "task": [True, "1", "77"], "own": True, "here": "8", "own_later": False}


def test_a_ray_that_others_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version in constraints.txt is not reached by others, as the test above sees."""
    monkeypatch.setattr("ray.nodes", lambda: [{"NodeManagerAddress": "10.0.0.7"}])
    with pytest.raises(TrainingError, match=r"listens on 10.0.0.7, which other machines can reach, .*; install the version in constr"):
        _check_loopback()
    assert f"ray=={ray.__version__}" in (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()


SIGNALLED = """
import signal
import ray
from pipelines.config.train.train import Train
from pipelines.command_line import exit_on_error
from pipelines.launch.cluster import cluster

init = ray.init

def init_and_signal(*arguments, **settings):
    init(*arguments, **settings)
    signal.raise_signal(signal.SIGTERM)

def main():
    ray.init = init_and_signal
    with cluster(Train()):
        print("entered")

exit_on_error(main)
"""


@pytest.mark.full
def test_p8_a_signal_while_ray_starts_finds_no_handler_of_ray_s(tmp_path: Path) -> None:
    process = run_program(SIGNALLED, tmp_path)
    assert (process.returncode, process.stdout) == (143, ""), process.stderr
    assert "SIGTERM" not in process.stderr

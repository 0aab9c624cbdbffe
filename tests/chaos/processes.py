"""Processes that can be killed: Ray's nodes, the tracking server, the jobs. All are children of this one."""

import atexit
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import psutil
from loopback import free_port
from sessions import session_pids
from waiting import wait_until

ROOT = Path(__file__).parents[2]
STORE_BYTES = 100 * 2**20
START_SECONDS = 240.0


def environment(first: str = "", **more: str) -> dict[str, str]:
    """Of a job: this checkout's packages, those of `first` before them."""
    path = os.pathsep.join([*([first] if first else []), str(ROOT), str(ROOT / "tests"), str(ROOT / "cluster/local")])
    variables = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "PYSPARK_GATEWAY_PORT")}
    return {**variables, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **more}


class Job:
    """`python jobs/…` in a session of its own, what it prints in a file."""

    def __init__(self, arguments: list[str], log: Path, **variables: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=environment(**variables),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        atexit.register(self._leave)

    def _leave(self) -> None:
        """Whoever started it is gone, and so is it."""
        if self.ended is None:
            self.end_session()

    @property
    def ended(self) -> int | None:
        return self.process.poll()

    def tail(self, lines: int = 12) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """To the job itself; SIGKILL to all of its session, as a machine's failure would."""
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, number)
            else:
                self.process.send_signal(number)

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def end_session(self) -> None:
        """SIGKILL also to what has a process group of its own in the session, as Ray's workers have."""

        def has_ended() -> bool:
            for number in (alive := session_pids(self.process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            return not alive

        self.end()
        wait_until(has_ended, f"the end of the session of process {self.process.pid}")


class Nodes:
    """A Ray of a head without CPUs and two nodes of one CPU each, on this machine: three sessions of processes."""

    def __init__(self) -> None:
        # Ray's sockets lie in this folder, and a socket's path has at most 107 characters: so not below TMPDIR.
        self._folder = tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp", ignore_cleanup_errors=True)
        token = Path(self._folder.name, "token")
        token.write_text(secrets.token_hex(32))
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_worker_niceness": "0"}
        """For whoever is to be let in."""
        self._all: list[Job] = []
        self._ray("--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self._folder.name}")
        with ThreadPoolExecutor(2) as both:
            self.nodes = list(both.map(lambda _: self._node(), range(2)))

    def _node(self) -> Job:
        return self._ray(f"--address={self.address}", "--num-cpus=1")

    def _ray(self, *options: str) -> Job:
        """A node that is up. On a busy machine Ray gives its processes up too soon: then once more."""
        common = ["--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1", f"--object-store-memory={STORE_BYTES}"]
        command = ["-c", "from ray.scripts.scripts import main; main()", "start", *common, *options]
        for _ in range(3):
            node = Job(command, Path(self._folder.name, f"node-{uuid4().hex[:6]}.log"), **self.variables)
            self._all.append(node)
            if wait_until(lambda node=node: _start_state(node), "a Ray node, or its end", START_SECONDS, say=node.tail) == "up":
                return node
            node.end_session()
        raise AssertionError(f"a Ray node did not start:\n{node.tail()}")

    def kill(self, number: int) -> None:
        """SIGKILL to all of a node's processes, its workers too."""
        self.nodes[number].end_session()

    def restart_node(self, number: int) -> None:
        self.nodes[number] = self._node()

    def workers(self) -> list[psutil.Process]:
        """Processes that train; those of Ray Train's controller and of Ray itself are others."""
        workers = []
        for node in self.nodes:
            for number in session_pids(node.process.pid):
                with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    process = psutil.Process(number)
                    if (process.cmdline() or [""])[0].startswith("ray::RayTrainWorker"):
                        workers.append(process)
        return workers

    def close(self) -> None:
        for node in reversed(self._all):
            node.end_session()
        self._folder.cleanup()


def _start_state(node: Job) -> str:
    """How the start of a Ray node went; empty if it goes on."""
    if node.ended is not None:
        return "failed"
    return "up" if "Ray runtime started" in node.log.read_text(errors="replace") else ""


class Server:
    """An MLflow server that can be killed and comes back on the same port with the same store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = f"sqlite:///{folder}/mlflow.db"
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        arguments = ["-m", "chaos.server", str(self.port), self.store, str(self._folder / "artifacts")]
        self._job = Job(arguments, self._folder / "server.log")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.1)
        raise AssertionError(f"the tracking server did not start:\n{self._job.tail()}")

    def kill(self) -> None:
        self._job.end()

    close = kill


def actors(kind: str) -> list[psutil.Process]:
    """Processes below this one that are Ray's actors of a class."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if (process.cmdline() or [""])[0].startswith(f"ray::{kind}"):
                processes.append(process)
    return processes

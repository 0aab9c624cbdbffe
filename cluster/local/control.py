"""Spark, Ray and MLflow on this machine, as servers that stay: `make cluster-up`, `make cluster-status`, `make cluster-down`.

    python cluster/local/control.py up | down | status

A Spark master with two workers, a Ray head with a second node, MLflow on PostgreSQL. All lie in LOCKSTEP_CLUSTER, by
default `.cluster` in LOCKSTEP_HOME: logs, secrets, data, and `cluster.env`, which makes a shell use them. `up` starts
what is not running, so it also brings back what has died.
"""

import fcntl
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlflow_server
import postgres
from credentials import write
from ray_head import stop_jobs
from servers import chosen_ports, client_variables, servers, write_conf
from service import NotStartedError, Service
from sessions import leave_on_signals


@dataclass(frozen=True)
class Places:
    """What a start decides, and is kept for those who come later."""

    ports: dict[str, int]
    sockets: Path
    """Ray's, whose paths may have 107 characters: below /tmp, whatever TMPDIR is."""

    @classmethod
    def kept(cls, folder: Path) -> "Places | None":
        file = folder / "places.json"
        if not file.exists():
            return None
        found = json.loads(file.read_text())
        return cls(found["ports"], Path(found["sockets"]))

    @classmethod
    def new(cls, folder: Path) -> "Places":
        places = cls(chosen_ports(), Path(tempfile.mkdtemp(prefix="lockstep-", dir="/tmp")))
        write(folder / "places.json", json.dumps({"ports": places.ports, "sockets": str(places.sockets)}))
        return places


def main(arguments: list[str]) -> None:
    home = Path(os.environ.get("LOCKSTEP_HOME") or Path.cwd())
    folder = Path(os.environ.get("LOCKSTEP_CLUSTER") or home / ".cluster").absolute()
    match arguments:
        case ["up"]:
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            with alone(folder):
                up(folder)
        case ["down"] if places := Places.kept(folder):
            with alone(folder):
                down(folder, places)
        case ["status"] if places := Places.kept(folder):
            status(folder, places)
        case ["down"] | ["status"]:
            print(f"no cluster in {folder}: `make cluster-up` makes one")
            sys.exit(arguments == ["status"])
        case _:
            sys.exit("usage: python cluster/local/control.py up | down | status")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two that start the same servers would end each other's."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def up(folder: Path) -> None:
    """Start what is not running; if something does not start, end what this command has started."""
    places = Places.kept(folder)
    if places is None or all(server.state() == "down" for server in everything(folder, places)):
        if places is not None:
            down(folder, places)
        places = Places.new(folder)
        write_conf(folder, places.ports)
        postgres.initialise(folder)
    begun: list[Service] = []
    try:
        for wave in servers(folder, places.ports, places.sockets):
            missing = [server for server in wave if server.state() != "up"]
            for server in missing:
                begun.append(server)
                server.start()
            for server in missing:
                server.wait()
                print(f"{server.name:<16} {server.address}", flush=True)
                if server.name == "postgres":
                    postgres.prepare(folder, places.ports["postgres"])
    except BaseException as error:
        for server in reversed(begun):
            server.end()
        if isinstance(error, NotStartedError):
            sys.exit(str(error))
        raise
    print(f"logs {folder}/logs; to use it in a shell:\n  . {shlex.quote(str(environment(folder, places)))}")


def down(folder: Path, places: Places) -> None:
    """Let jobs save and end, then end all servers, those first that need others; logs and data stay."""
    running = [server for server in reversed(everything(folder, places)) if server.leader() is not None]
    if any(server.name == "ray-head" and server.state() == "up" for server in running):
        os.environ.update(client_variables(folder, places.ports))
        stop_jobs(os.environ["RAY_API_SERVER_ADDRESS"])
    for server in running:
        server.end()
        print(f"{server.name:<16} ended", flush=True)
    for node in ("head", "node"):
        logs = places.sockets / node / "session_latest/logs"
        if logs.exists():
            shutil.rmtree(folder / "logs/ray" / node, ignore_errors=True)
            shutil.copytree(logs.resolve(), folder / "logs/ray" / node, symlinks=True)
    shutil.rmtree(places.sockets, ignore_errors=True)
    for name in ("places.json", "cluster.env"):
        (folder / name).unlink(missing_ok=True)


def status(folder: Path, places: Places) -> None:
    """A line for each server; exit code 1 if one of them does not answer."""
    states = []
    for server in everything(folder, places):
        states.append(state := server.state())
        print(f"{server.name:<16} {state:<14} {server.address}")
    print(f"logs {folder}/logs, of Ray {places.sockets}/*/session_latest/logs")
    sys.exit(any(state != "up" for state in states))


def everything(folder: Path, places: Places) -> list[Service]:
    first, then = servers(folder, places.ports, places.sockets)
    return [*first, *then]


def environment(folder: Path, places: Places) -> Path:
    """The file that makes a shell use the cluster. It says where the password is, not what it is."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in client_variables(folder, places.ports).items()]
    lines.append(f'export MLFLOW_TRACKING_PASSWORD="$(cat {shlex.quote(str(mlflow_server.password(folder)))})"\n')
    return write(folder / "cluster.env", "".join(lines))


if __name__ == "__main__":
    leave_on_signals()
    main(sys.argv[1:])

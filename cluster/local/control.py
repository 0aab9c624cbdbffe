"""Runs Spark, Ray and MLflow on this machine as servers: `make cluster-up`, `make cluster-status`, `make cluster-down`.

    python cluster/local/control.py up | down | status

They are a Spark master with two workers, a Ray head with a second node, and MLflow on PostgreSQL; also Prometheus and Grafana where
they are installed. The folder LOCKSTEP_CLUSTER, by default `.cluster` in LOCKSTEP_HOME, has their logs, secrets and data, and
`cluster.env`, which a shell sources to use them. `up` starts every server that does not run, so it also restarts dead ones. A
`hosts.json` in the folder assigns servers to other hosts.
"""

import fcntl
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow_server
import monitoring
import postgres
from credentials import private, write
from places import Places, forget_places, new_places, read_places
from ray_head import stop_jobs
from servers import client_variables, servers, write_conf
from service import NotStartedError, Service
from sessions import leave_on_signals


def main(arguments: list[str]) -> None:
    home = Path(os.environ.get("LOCKSTEP_HOME") or Path.cwd())
    folder = Path(os.environ.get("LOCKSTEP_CLUSTER") or home / ".cluster").absolute()
    match arguments:
        case ["up"]:
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            with lock(folder):
                up(folder)
        case ["down"] if places := read_places(folder):
            with lock(folder):
                down(places)
        case ["status"] if places := read_places(folder):
            status(places)
        case ["down"] | ["status"]:
            print(f"no cluster in {folder}: `make cluster-up` starts one")
            sys.exit(arguments == ["status"])
        case _:
            sys.exit("usage: python cluster/local/control.py up | down | status")


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two commands that start the same servers would end each other's."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def up(folder: Path) -> None:
    """Start every server that does not run. If a server does not start, end those that this command has started."""
    places = read_places(folder)
    if places is None or all(server.state() == "down" for server in all_servers(places)):
        if places is not None:
            down(places)
        places = new_places(folder)
        private(folder / "logs")  # Ray's logs may show a token
        write_conf(places)
        monitoring.write_conf(places)
        postgres.initialise(folder)
    launched: list[Service] = []
    try:
        for wave in (*servers(places), *([service] for service in monitoring.services(places))):
            missing = [server for server in wave if server.state() != "up"]
            for server in missing:
                launched.append(server)
                server.start()
            for server in missing:
                server.wait()
                print(f"{server.name:<16} {server.address}", flush=True)
                if server.name == "postgres":
                    postgres.prepare(places)
    except BaseException as error:
        for server in reversed(launched):
            server.end()
        if isinstance(error, NotStartedError):
            sys.exit(str(error))
        raise
    print(f"links {folder}/links.html\nlogs {folder}/logs; to use it in a shell:\n  . {shlex.quote(str(environment(places)))}")


def down(places: Places) -> None:
    """Stop jobs, which may save first, then end all servers in the reverse order of their start. Logs and data are kept."""
    running = [server for server in reversed(all_servers(places)) if server.leader() is not None]
    if any(server.name == "ray-head" and server.state() == "up" for server in running):
        os.environ.update(client_variables(places))
        stop_jobs(os.environ["RAY_API_SERVER_ADDRESS"])
    for server in running:
        server.end()
        print(f"{server.name:<16} ended", flush=True)
    for node in ("head", "node"):
        logs = places.sockets / node / "session_latest/logs"
        if logs.exists():
            copy = places.folder / "logs/ray" / node
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(logs.resolve(), copy, symlinks=True)
    shutil.rmtree(places.sockets, ignore_errors=True)
    _environment_file(places).unlink(missing_ok=True)
    forget_places(places)


def status(places: Places) -> None:
    """Print a line for each server. Exits with 1 if one of them does not answer."""
    states = []
    for server in all_servers(places):
        states.append(state := server.state())
        print(f"{server.name:<16} {state:<14} {server.address}")
    print(f"links {places.folder}/links.html")
    print(f"logs {places.folder}/logs, of Ray {places.sockets}/*/session_latest/logs")
    sys.exit(any(state != "up" for state in states))


def all_servers(places: Places) -> list[Service]:
    first_wave, second_wave = servers(places)
    return [*first_wave, *second_wave, *monitoring.services(places)]


def environment(places: Places) -> Path:
    """Write the file that a shell sources to use the cluster. It contains the path of the password's file, not the password."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in client_variables(places).items()]
    lines.append(f'export MLFLOW_TRACKING_PASSWORD="$(cat {shlex.quote(str(mlflow_server.password(places.folder)))})"\n')
    return write(_environment_file(places), "".join(lines))


def _environment_file(places: Places) -> Path:
    return places.folder / "cluster.env"


if __name__ == "__main__":
    leave_on_signals()
    main(sys.argv[1:])

"""Hosts, ports and folders of the servers: decided when the first of them starts, and kept until all have ended."""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from credentials import write
from loopback import LOOPBACK, free_port, is_free
from pydantic import ConfigDict, TypeAdapter, ValidationError

PORTS = {
    "postgres": ("postgres", 5432),
    "mlflow": ("mlflow", 5000),
    "spark": ("spark-master", 7077),
    "spark-ui": ("spark-master", 8080),
    "worker-1": ("spark-worker-1", 8081),
    "worker-2": ("spark-worker-2", 8082),
    "ray": ("ray-head", 6379),
    "jobs": ("ray-head", 8265),
}
"""By name: the server that listens on the port, and its usual number."""
MONITORING_PORTS = {"textfiles": 9101, "prometheus": 9090, "grafana": 3000}
"""The ports of servers that are always on this machine's loopback."""
SERVERS = {"ray-node", *(server for server, _ in PORTS.values())}
_FILE = "places.json"


@dataclass(frozen=True)
class Host:
    """A host of servers: this machine's loopback, which no other machine can reach, or a host with its own address."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    address: str
    interface: str
    """The network interface that has the address."""
    enter: tuple[str, ...]
    """Prefix of a command that runs there."""


HERE = Host(LOOPBACK, "lo", ())
_HOSTS = TypeAdapter(dict[str, Host])


@dataclass(frozen=True)
class PlacesFile:
    """The contents of `places.json`."""

    ports: dict[str, int]
    sockets: str
    hosts: dict[str, Host]


_PLACES_FILE = TypeAdapter(PlacesFile)


@dataclass(frozen=True)
class Places:
    folder: Path
    """The folder of logs, secrets and data; all hosts have it at this path."""
    ports: Mapping[str, int]
    sockets: Path
    """The folder of Ray's sockets. It is in /tmp, and not in TMPDIR, since the path of a socket has at most 107 characters."""
    hosts: Mapping[str, Host]
    """Hosts by server; empty if all run on this machine's loopback."""

    def host(self, server: str) -> Host:
        return self.hosts.get(server, HERE)

    def at(self, name: str) -> str:
        """host:port of one of PORTS or MONITORING_PORTS."""
        host = self.host(PORTS[name][0]) if name in PORTS else HERE
        return f"{host.address}:{self.ports[name]}"


def read_places(folder: Path) -> Places | None:
    """The places of servers that were started and not ended; None if there are none. Exits, naming the file, if it is damaged."""
    file = folder / _FILE
    if not file.exists():
        return None
    try:
        content = _PLACES_FILE.validate_json(file.read_bytes())
    except ValidationError as error:
        sys.exit(f"{file}: {_first(error)}; end the servers, whose process ids are in {folder}/pids, and remove the file")
    return Places(folder, content.ports, Path(content.sockets), content.hosts)


def new_places(folder: Path) -> Places:
    """Choose the usual ports, and free ones for those in use; the hosts are those of hosts.json, {server: fields of Host}.

    Exits, naming the file, if that is invalid.
    """
    hosts = _read_hosts(folder / "hosts.json")
    usual = {name: port for name, (_, port) in PORTS.items()} | MONITORING_PORTS
    ports = {name: port if is_free(port) else free_port() for name, port in usual.items()}
    places = Places(folder, ports, Path(tempfile.mkdtemp(prefix="lockstep-", dir="/tmp")), hosts)
    write(folder / _FILE, json.dumps(asdict(PlacesFile(ports, str(places.sockets), hosts))))
    return places


def forget_places(places: Places) -> None:
    (places.folder / _FILE).unlink(missing_ok=True)


def _read_hosts(file: Path) -> dict[str, Host]:
    """Every server's host; empty if there is no such file."""
    if not file.exists():
        return {}
    try:
        hosts = _HOSTS.validate_json(file.read_bytes())
    except ValidationError as error:
        sys.exit(f"{file}: {_first(error)}; docs/how-to/cluster.md shows an example")
    if hosts.keys() != SERVERS:
        sys.exit(f"{file} names {', '.join(sorted(hosts))}, but must name every server: {', '.join(sorted(SERVERS))}")
    if missing := sorted({host.enter[0] for host in hosts.values() if host.enter and not shutil.which(host.enter[0])}):
        sys.exit(f"{file}: {', '.join(missing)} is not installed; `enter` is the prefix of a command that runs on the host")
    return hosts


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"

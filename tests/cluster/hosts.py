"""Hosts on one machine: network namespaces on a bridge, each with an address of its own and a cable that can be pulled."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

NETWORK, BRIDGE, INTERFACE = "10.77.0", "lockstep0", "eth0"
GATEWAY = f"{NETWORK}.1"
"""This machine, as the hosts reach it."""


@dataclass(frozen=True)
class Host:
    name: str
    address: str

    @property
    def enter(self) -> list[str]:
        """Prefix of a command that runs there. `ip netns exec` shows it the files below /etc/netns/NAME as those of /etc."""
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name]

    @property
    def namespace(self) -> str:
        return f"lockstep-{self.name}"

    @property
    def cable(self) -> str:
        """The bridge's end of it; such a name may have 15 characters."""
        return f"ls-{self.name}"

    def description(self) -> dict[str, object]:
        """Its entry in hosts.json."""
        return {"address": self.address, "interface": INTERFACE, "enter": self.enter}

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Nothing reaches it, and it reaches nothing; what runs there runs on."""
        ip("link", "set", self.cable, "down")
        try:
            yield
        finally:
            ip("link", "set", self.cable, "up")


def missing() -> str:
    """What this machine lacks to make hosts; empty if nothing."""
    if os.geteuid():
        return "only root makes network namespaces"
    return "" if shutil.which("ip") else "needs ip, of Debian's iproute2"


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[list[Host]]:
    """So many hosts, which know each other by name, and this machine by the bridge's address."""
    network_hosts = [Host(name, f"{NETWORK}.{number}") for number, name in enumerate(names, 2)]
    _remove(network_hosts)
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for host in network_hosts:
            _add(host, network_hosts)
        yield network_hosts
    finally:
        _remove(network_hosts)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def _add(host: Host, everyone: list[Host]) -> None:
    etc = Path("/etc/netns") / host.namespace
    etc.mkdir(parents=True)
    entries = [("127.0.0.1", "localhost"), *((other.address, other.name) for other in everyone)]
    (etc / "hosts").write_text("".join(f"{address} {name}\n" for address, name in entries))
    (etc / "resolv.conf").write_text("")  # nobody waits for a name server that does not answer
    ip("netns", "add", host.namespace)
    ip("link", "add", host.cable, "type", "veth", "peer", "name", INTERFACE, "netns", host.namespace)
    ip("link", "set", host.cable, "master", BRIDGE, "up")
    ip("-n", host.namespace, "address", "add", f"{host.address}/24", "dev", INTERFACE)
    for interface in ("lo", INTERFACE):
        ip("-n", host.namespace, "link", "set", interface, "up")
    ip("-n", host.namespace, "route", "add", "default", "via", GATEWAY)


def _remove(network_hosts: list[Host]) -> None:
    """What is there of them, also of a test that was killed."""
    for host in network_hosts:
        with suppress(subprocess.CalledProcessError):
            ip("netns", "delete", host.namespace)
        with suppress(subprocess.CalledProcessError):
            ip("link", "delete", host.cable)
        shutil.rmtree(Path("/etc/netns") / host.namespace, ignore_errors=True)
    with suppress(subprocess.CalledProcessError):
        ip("link", "delete", BRIDGE)

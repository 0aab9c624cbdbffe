"""Two network namespaces of this machine, joined by a link whose rate can be limited."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NAMESPACES = ("lockstep-left", "lockstep-right")
INTERFACES = ("ls-left", "ls-right")
ADDRESSES = ("10.78.0.1", "10.78.0.2")


def missing_requirement() -> str:
    """Name what this machine lacks for the link; empty if nothing."""
    if os.geteuid():
        return "only root makes network namespaces"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "needs ip and tc, of Debian's iproute2"
    try:
        with link():
            shape(100)
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.decode().strip()}"
    return ""


@contextmanager
def link() -> Iterator[None]:
    """The namespaces and the link, as fast as memory."""
    _remove()
    try:
        for namespace in NAMESPACES:
            _call("ip", "netns", "add", namespace)
        _call("ip", "link", "add", INTERFACES[0], "netns", NAMESPACES[0], "type", "veth", "peer", INTERFACES[1], "netns", NAMESPACES[1])
        for namespace, interface, address in zip(NAMESPACES, INTERFACES, ADDRESSES, strict=True):
            _call("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", interface)
            for name in ("lo", interface):
                _call("ip", "-n", namespace, "link", "set", name, "up")
        yield
    finally:
        _remove()


def shape(megabits: int | None) -> None:
    """Limit the link to so many Mbit/s each way, or lift the limit."""
    for namespace, interface in zip(NAMESPACES, INTERFACES, strict=True):
        with suppress(subprocess.CalledProcessError):  # there is no limit
            _call("tc", "-n", namespace, "qdisc", "del", "dev", interface, "root")
        if megabits:
            bucket = ("rate", f"{megabits}mbit", "burst", "64kb", "latency", "50ms")
            _call("tc", "-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf", *bucket)


def enter_command(side: int) -> list[str]:
    """Prefix of a command that runs on one side."""
    return ["ip", "netns", "exec", NAMESPACES[side]]


def _remove() -> None:
    for namespace in NAMESPACES:
        with suppress(subprocess.CalledProcessError):  # it is not there
            _call("ip", "netns", "del", namespace)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

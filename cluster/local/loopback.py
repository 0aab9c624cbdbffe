"""The loopback address, which only this machine can reach, and its ports."""

import socket

from pipelines.runtime import machine

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    """Whether no server listens on the port; a connection that has just closed does not count."""
    return not machine.port(LOOPBACK, port).fault

"""Spark's Python workers print nothing when Java closes their sockets, as it does when it cancels a task."""

import os
import socket
import struct
import subprocess
import sys

import pytest
from waiting import wait_until

from pipelines.runtime.compat.spark import WORKER_MODULES

SECRET = b"a secret"


@pytest.mark.parametrize("sent", [b"", struct.pack("!i", len(SECRET)) + SECRET, struct.pack("!i", len(SECRET)) + SECRET + b"\x00\x00"])
def test_a_worker_whose_socket_is_closed_prints_no_traceback(sent: bytes) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-m", "pipelines.runtime.compat.spark_daemon", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(), WORKER_MODULES: "pyarrow no_such_module"},
    )
    assert daemon.stdout is not None
    port = struct.unpack("!i", daemon.stdout.read(4))[0]
    with socket.create_connection(("127.0.0.1", port)) as java:
        worker = struct.unpack("!i", java.recv(4))[0]
        java.sendall(sent)
        java.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets the connection
    wait_until(lambda: not _runs(worker), f"the end of Spark's Python worker {worker}")
    _, printed = daemon.communicate(timeout=30)
    assert printed == b""


def _runs(process: int) -> bool:
    """False also for a process that its parent has not collected yet."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

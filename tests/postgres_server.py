"""A server of PostgreSQL for tests, really started: in a folder of its own, on a free port, with a password."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import postgres  # type: ignore[import-untyped]  # of cluster/local
import psycopg
import pytest

PASSWORD = "for tests"
OWNER = "postgres"


@dataclass(frozen=True)
class Server:
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://{OWNER}@127.0.0.1:{self.port}/postgres"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=OWNER, password=PASSWORD, dbname=database, autocommit=True, client_encoding="utf8"
        )

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def kill(self) -> None:
        """As a machine that fails does: no process of the server ends in order."""
        process = int((self.folder / "data/postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        for number in [process, *map(int, children)]:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@contextmanager
def server() -> Iterator[Server]:
    """A server that runs until the end of the block; the test is skipped where PostgreSQL is not installed."""
    try:
        programs, owner = postgres.programs(), postgres._as_owner()
    except SystemExit as error:
        pytest.skip(str(error))
    folder = Path(tempfile.mkdtemp(prefix="lockstep-postgres-", dir="/var/tmp"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "password").write_text(PASSWORD)
    if owner:
        for path in (folder, folder / "password"):
            shutil.chown(path, OWNER, OWNER)
    options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c fsync=off -c shared_buffers=32MB"
    data, login = str(folder / "data"), ["--username", OWNER, "--auth=scram-sha-256", f"--pwfile={folder}/password"]
    try:
        _run([*owner, str(programs / "initdb"), "-D", data, "--encoding=UTF8", "--locale=C", "--no-sync", *login])
        _run([*owner, str(programs / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start"])
        yield Server(folder, port)
    finally:
        subprocess.run([*owner, str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "stop"], capture_output=True, cwd="/", check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> None:
    # Output into a file: the server keeps what it inherits open.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.run(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd="/", check=False)
        output.seek(0)
        assert process.returncode == 0, output.read()[-2000:]

"""Models served by `mlflow models serve`, in a process that knows of this repository only what a model carries."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from loopback import free_port


@contextmanager
def model_server(uri: str, folder: Path, variables: Mapping[str, str]) -> Iterator[Callable[[dict[str, Any]], dict[str, Any]]]:
    """What asks the model, started in `folder`; `variables` say where MLflow is."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {**variables, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", uri, "--env-manager", "local", "-p", str(port), "-w", "1"]
    with open(folder / "log", "w") as log, subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as server:
        try:
            yield lambda content: _posted(server, port, content, folder / "log")
        finally:
            server.terminate()


def _posted(server: subprocess.Popen[bytes], port: int, content: dict[str, Any], log: Path, seconds: float = 240) -> dict[str, Any]:
    """The server's answer, once it is up."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", json.dumps(content).encode(), {"Content-Type": "application/json"}
    )
    deadline = monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(request) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        except urllib.error.URLError:
            assert monotonic() < deadline and server.poll() is None, log.read_text()
            sleep(0.5)

"""Models served by `mlflow models serve`, in a process that knows of this repository only what a model carries."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from loopback import free_port


@dataclass
class ModelServer:
    """A running server, which is asked once it is up."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def __call__(self, content: dict[str, Any]) -> dict[str, Any]:
        """The answer to JSON. Raises AssertionError if it is not 200."""
        status, answer = self.post(json.dumps(content).encode(), "application/json")
        assert status == 200, answer
        return dict(answer)

    def post(self, body: bytes, kind: str, seconds: float = 240) -> tuple[int, Any]:
        """Status and content of an answer, which must be JSON as RFC 8259 has it: without NaN and Infinity."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/invocations", body, {"Content-Type": kind})
        deadline = monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(request) as response:
                    return response.status, strictly_parsed(response.read())
            except urllib.error.HTTPError as error:
                return error.code, strictly_parsed(error.read())
            except urllib.error.URLError:
                assert monotonic() < deadline and self.process.poll() is None, self.log.read_text()
                sleep(0.5)


def strictly_parsed(text: bytes) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON: {text.decode()}")

    return json.loads(text, parse_constant=refuse)


@contextmanager
def model_server(uri: str, folder: Path, variables: Mapping[str, str]) -> Iterator[ModelServer]:
    """What asks the model, started in `folder`; `variables` say where MLflow is."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {**variables, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", uri, "--env-manager", "local", "-p", str(port), "-w", "1"]
    with open(folder / "log", "w") as log, subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log) as server:
        try:
            yield ModelServer(server, port, folder / "log")
        finally:
            server.terminate()

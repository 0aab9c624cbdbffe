"""Requests per second and latencies of the endpoint, beside `mlflow models serve` and an application written by hand.

    python -m benchmarks.serving.load conf/adult.yaml models:/adult@champion [--seconds 30] [--fault-seconds 600]

`hey` (of Debian) sends requests of one row on loopback, from processes on the same cores: as many as are answered with 32 connections, and
half of that from 32 processes with one connection each, which send in turn. Then the champion moves three times and two replicas are
killed under load.
"""

import argparse
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import psutil
from mlflow import MlflowClient

from benchmarks.report import Row, package_versions, save, show
from pipelines import api
from pipelines.config import Config
from pipelines.serving.model.logged_model import read_model
from pipelines.serving.model.scoring import input_example
from pipelines.tracking.models import registered_model_files, resolve_version

PORT, CONNECTIONS = 8123, 32
URL = f"http://127.0.0.1:{PORT}/invocations"


def main() -> None:
    parser = argparse.ArgumentParser("benchmarks.serving.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("conf")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=int, default=20, help="of each row of the first table")
    parser.add_argument("--fault-seconds", type=int, default=60, help="of the second table")
    options = parser.parse_args()
    config = api.read_config(options.conf)
    with TemporaryDirectory() as folder:
        body = Path(folder, "body.json")
        body.write_text(json.dumps({"dataframe_records": [example(config, options.model)]}))
        compared = [row for name in servers(options.conf, options.model, 1) for row in measure(name, options, config, body)]
        faults = [measure_under_faults(options, config, body)]
    show(f"one row a request, {CONNECTIONS} connections, and half of that rate", compared)
    show("3 moves of the champion and 2 killed replicas", faults)
    tables = {"load": compared, "faults": faults}
    print(f"\nsaved {save('serving-load', tables, package_versions('ray', 'mlflow', 'fastapi', 'torch'))}")


def servers(conf: str, model: str, replicas: int) -> dict[str, list[str]]:
    """The command of each server."""
    python, port = [sys.executable, "-m"], str(PORT)
    flags = [f"--endpoint.{key}={value}" for key, value in {"model": model, "port": PORT, "replicas": replicas}.items()]
    flags = [word for flag in flags for word in flag.split("=", 1)]
    return {
        "lockstep": [sys.executable, "cluster/serve.py", conf, *flags],
        "mlflow models serve": [*python, "mlflow", "models", "serve", "-m", model, "--env-manager", "local", "-p", port, "-w", "2"],
        "fastapi by hand": [
            *python,
            "uvicorn",
            "benchmarks.serving.by_hand:app",
            "--workers",
            "2",
            "--port",
            str(PORT),
            "--log-level",
            "error",
        ],
    }


@contextmanager
def run_server(command: list[str], config: Config, model: str, body: Path) -> Iterator[psutil.Process]:
    """The server, from its first answer on."""
    environment = {**os.environ, "MLFLOW_TRACKING_URI": config.tracking.uri, "BY_HAND_MODEL": model}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    with open(body.with_name("log"), "w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 300
        while not answers(body):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} does not answer:\n{body.with_name('log').read_text()[-2_000:]}")
            time.sleep(1)
        yield psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait(60)
        subprocess.run(["sleep", "2"], check=True)


def answers(body: Path) -> bool:
    request = urllib.request.Request(URL, body.read_bytes(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def measure(name: str, options: argparse.Namespace, config: Config, body: Path) -> list[Row]:
    with run_server(servers(options.conf, options.model, 1)[name], config, options.model, body):
        measure_highest_rate(body, 5)
        most = measure_highest_rate(body, options.seconds)
        half = measure_at_rate(body, options.seconds, float(str(most["requests_per_second"])) / 2)
    return [{"server": name, "rate": "most", **most}, {"server": name, "rate": "half", **half}]


def measure_under_faults(options: argparse.Namespace, config: Config, body: Path) -> Row:
    """Two replicas, whose alias moves at 1, 3 and 5 sixths of the time, and one of which is killed at 2 and 4 sixths."""
    client, (name, _, alias) = MlflowClient(config.tracking.uri), options.model.removeprefix("models:/").partition("@")
    first = client.get_model_version_by_alias(name, alias).version
    other = next(row.version for row in client.search_model_versions(f"name = '{name}'") if row.version != first)
    killed: list[int] = []

    def kill(server: psutil.Process) -> None:
        replica = next(process for process in server.children(recursive=True) if "ServeReplica" in " ".join(process.cmdline()))
        killed.append(replica.pid)
        replica.send_signal(signal.SIGKILL)

    seconds = options.fault_seconds
    with run_server(servers(options.conf, options.model, 2)["lockstep"], config, options.model, body) as server:
        moves = [
            Timer(seconds * at / 6, client.set_registered_model_alias, (name, alias, to)) for at, to in ((1, other), (3, first), (5, other))
        ]
        kills = [Timer(seconds * at / 6, kill, (server,)) for at in (2, 4)]
        for timer in (*moves, *kills):
            timer.start()
        row = measure_highest_rate(body, seconds)
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
            swaps = re.findall(r"^lockstep_swaps_total (\d+)", answer.read().decode(), re.MULTILINE)
    client.set_registered_model_alias(name, alias, first)
    return {"seconds": seconds, **row, "killed_replicas": len(killed), "swaps_in_replicas": int(swaps[0]) if swaps else 0}


def measure_highest_rate(body: Path, seconds: int) -> Row:
    """As many requests as are answered with CONNECTIONS open ones."""
    output = _start(body, seconds, CONNECTIONS).communicate()[0]
    statuses = {status: int(count) for status, count in re.findall(r"\[(\d+)\]\s+(\d+) responses", output)}
    errors = sum(int(count) for count in re.findall(r"^\s+\[(\d+)\]\s+\w+ \"", output, re.MULTILINE))
    quantiles = {f"p{share}_ms": float(value) * 1_000 for share, value in re.findall(r"(50|95|99)%+ in ([\d.]+) secs", output)}
    per_second = re.search(r"Requests/sec:\s+([\d.]+)", output)
    row: dict[str, Any] = {"requests_per_second": float(per_second[1]) if per_second else 0.0, **quantiles}
    return {**row, "answered_200": statuses.pop("200", 0), "other_answers": json.dumps(statuses), "no_answer": errors}


def measure_at_rate(body: Path, seconds: int, rate: float) -> Row:
    """Requests at equal intervals: connections of one process would all send at the same moment, and too few of them would wait for
    their answers instead of keeping the rate."""
    clients = []
    for _ in range(CONNECTIONS):
        clients.append(_start(body, seconds, 1, "-q", f"{rate / CONNECTIONS:.3f}", "-o", "csv"))
        time.sleep(1 / rate)
    answers = [row for client in clients for row in csv.DictReader(client.communicate()[0].splitlines())]
    milliseconds = sorted(1_000 * float(row["response-time"]) for row in answers)
    quantiles = {f"p{share}_ms": milliseconds[share * len(milliseconds) // 100] for share in (50, 95, 99)}
    statuses = Counter(row["status-code"] for row in answers)
    return {
        "requests_per_second": len(answers) / seconds,
        **quantiles,
        "answered_200": statuses.pop("200", 0),
        "other_answers": json.dumps(statuses),
    }


def _start(body: Path, seconds: int, connections: int, *options: str) -> subprocess.Popen[str]:
    command = ["hey", "-z", f"{seconds}s", "-c", str(connections), *options, "-m", "POST", "-T", "application/json", "-D", str(body), URL]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def example(config: Config, model: str) -> dict[str, Any]:
    """A row that the model takes."""
    with registered_model_files(config.tracking.uri, model, resolve_version(config.tracking.uri, model)) as folder:
        manifest = read_model(folder)[0].manifest
    return dict(json.loads(input_example(manifest).to_json(orient="records"))[0])


if __name__ == "__main__":
    main()

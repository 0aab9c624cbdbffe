"""Clusters for tests: their own folder, their own secrets, their ends."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import requests
from mlflow import MlflowClient
from mlflow.entities import Run
from servers import NODE_CPUS
from serving import model_server

ROOT = Path(__file__).parents[2]
CONTROL, SUBMIT = "cluster/local/control.py", "cluster/submit.py"
PLANTED = {
    name: f"planted{secrets.token_hex(12)}"
    for name in ("mlflow-password", "mlflow-database-password", "postgres-password", "spark-secret", "ray-token")
}
TRAIN = ["--", "python", "jobs/train.py", "conf/digits.yaml", "--train.cpus_per_worker", str(NODE_CPUS)]
"""A worker takes all of a node."""
_LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")


@contextmanager
def new_home() -> Iterator[Path]:
    """Not below pytest's own folder, which PostgreSQL's user may not enter."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def plain_environment(home: Path) -> dict[str, str]:
    """Of a shell that knows of no cluster, and whose relative paths start at `home`."""
    cluster_s = ("RAY_", "SPARK_", "PYSPARK_", "MLFLOW_", "LOCKSTEP_CLUSTER")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(cluster_s)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**variables, "LOCKSTEP_HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def cluster(home: Path, hosts: Mapping[str, Any] | None = None) -> Iterator[dict[str, str]]:
    """A cluster with planted secrets, on `hosts` as hosts.json has them; what a shell that has read cluster.env has.

    Its servers end with the block, and nothing of them is left.
    """
    variables = plain_environment(home)
    for name, value in PLANTED.items():
        (home / ".cluster/secrets").mkdir(parents=True, exist_ok=True)
        (home / ".cluster/secrets" / name).write_text(value)
    if hosts:
        (home / ".cluster/hosts.json").write_text(json.dumps(hosts))
    try:
        run([sys.executable, CONTROL, "up"], variables)
        output = run(["bash", "-c", f". {home}/.cluster/cluster.env && env -0"], variables)
        sockets = ray_folder(home)
        yield dict(line.split("=", 1) for line in output.split("\0") if "=" in line)
    finally:
        run([sys.executable, CONTROL, "down"], variables)
    assert mentioning(str(home)) == []
    assert not sockets.exists()


def run(command: list[str], environment: Mapping[str, str], code: int = 0, folder: Path = ROOT) -> str:
    process = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert process.returncode == code, f"{command} ended with {process.returncode}:\n{process.stdout[-4000:]}"
    return process.stdout


def ray_folder(home: Path) -> Path:
    return Path(json.loads((home / ".cluster/places.json").read_text())["sockets"])


def mentioning(text: str) -> list[str]:
    """Command lines, and those of processes whose environment has it, of all but this process."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command_line = (process / "cmdline").read_bytes()
            if text.encode() in command_line + (process / "environ").read_bytes() and int(process.name) != os.getpid():
                processes.append(command_line.decode(errors="replace").replace("\0", " "))
    return processes


@contextmanager
def mlflow_client(environment: Mapping[str, str]) -> Iterator[MlflowClient]:
    """With the cluster's login, which MLflow takes from this process's environment."""
    os.environ.update({name: environment[name] for name in _LOGIN})
    try:
        yield MlflowClient(environment["MLFLOW_TRACKING_URI"])
    finally:
        for name in _LOGIN:
            del os.environ[name]


def ray_says(path: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """JSON from the page `path` of Ray's dashboard, as its user asks it."""
    login = {"Authorization": f"Bearer {Path(environment['RAY_AUTH_TOKEN_PATH']).read_text()}"}
    return dict(requests.get(f"{environment['RAY_API_SERVER_ADDRESS']}/{path}", headers=login, timeout=30).json())


def find_run_id(output: str) -> str:
    """The MLflow run of a training that printed this."""
    (run_id,) = re.findall(r"run (\w+) (?:starts|resumes): ", output)
    return str(run_id)


KINDS = {"etl": "tags.`mlflow.lockstep.kind` = 'etl'", "training": "tags.strategy LIKE '%'"}


def the_run(client: MlflowClient, kind: str, status: str, experiment: str = "digits") -> Run:
    """The only one of that kind, a key of KINDS, and status."""
    experiment_entity = client.get_experiment_by_name(experiment)
    assert experiment_entity
    (run,) = client.search_runs([experiment_entity.experiment_id], f"{KINDS[kind]} AND attributes.status = '{status}'")
    return run


def assert_served(training: Run, environment: Mapping[str, str], folder: Path) -> None:
    """A digits' model, as the server's artifacts have it, answers its own example; `folder` is where it is served from."""
    (output,) = training.outputs.model_outputs
    login = {name: value for name, value in environment.items() if name.startswith("MLFLOW_TRACKING_")}
    example = folder / "example"
    artifacts = ["--artifact-uri", f"models:/{output.model_id}", "--dst-path", str(example)]
    run(["mlflow", "artifacts", "download", *artifacts], dict(environment))
    with model_server(f"models:/{output.model_id}", folder, login) as ask:
        (row,) = ask(json.loads((example / "serving_input_example.json").read_text()))["predictions"]
    assert row["refused"] is None and row["prediction"] in set("0123456789")

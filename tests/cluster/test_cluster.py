"""A cluster of servers on this machine, used as its users do: by the tools' own commands, one after the other."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from mlflow import MlflowClient
from servers import NODE_CPUS

ROOT = Path(__file__).parents[2]
CONTROL, SUBMIT = "cluster/local/control.py", "cluster/submit.py"
PLANTED = {name: f"planted{secrets.token_hex(12)}" for name in ("mlflow-password", "mlflow-database-password", "spark-secret", "ray-token")}
TRAIN = ["--", "python", "jobs/train.py", "conf/digits.yaml", "--train.cpus_per_worker", str(NODE_CPUS)]
"""A worker takes all of a node."""

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Not below pytest's own folder, which PostgreSQL's user may not enter."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def environment(home: Path) -> Iterator[dict[str, str]]:
    """Of a shell that has read cluster.env; the servers end with the last test, and nothing of them is left."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RAY_", "SPARK_", "PYSPARK_", "MLFLOW_", "LOCKSTEP_CLUSTER"))
    }
    own.update(LOCKSTEP_HOME=str(home), PATH=path, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1")
    for name, value in PLANTED.items():
        (home / ".cluster/secrets").mkdir(parents=True, exist_ok=True)
        (home / ".cluster/secrets" / name).write_text(value)
    try:
        run([sys.executable, CONTROL, "up"], own)
        said = run(["bash", "-c", f". {home}/.cluster/cluster.env && env -0"], own)
        sockets = ray_folder(home)
        yield dict(line.split("=", 1) for line in said.split("\0") if "=" in line)
    finally:
        run([sys.executable, CONTROL, "down"], own)
    assert mentioning(str(home)) == []
    assert not sockets.exists()


def run(command: list[str], environment: dict[str, str], code: int = 0) -> str:
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout


def ray_folder(home: Path) -> Path:
    return Path(json.loads((home / ".cluster/places.json").read_text())["sockets"])


def mentioning(text: str) -> list[str]:
    """Command lines, and those of processes whose environment has it, of all but this process."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told = (process / "cmdline").read_bytes()
            if text.encode() in told + (process / "environ").read_bytes() and int(process.name) != os.getpid():
                found.append(told.decode(errors="replace").replace("\0", " "))
    return found


@contextmanager
def watched_command_lines() -> Iterator[list[str]]:
    """Command lines that hold a planted secret at any moment meanwhile."""
    found, stop = [], Event()

    def look() -> None:
        while not stop.wait(0.2):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = file.read_text(errors="replace")
                    found.extend([line] if any(secret in line for secret in PLANTED.values()) else [])

    thread = Thread(target=look)
    thread.start()
    yield found
    stop.set()
    thread.join()


@pytest.fixture(scope="module")
def client(environment: dict[str, str]) -> Iterator[MlflowClient]:
    names = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    os.environ.update({name: environment[name] for name in names})
    yield MlflowClient(environment["MLFLOW_TRACKING_URI"])
    for name in names:
        del os.environ[name]


def asked(address: str, environment: dict[str, str]) -> dict[str, Any]:
    """JSON from one of Ray's or Spark's servers, as its user asks it."""
    import requests

    token = Path(environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    return dict(requests.get(address, headers={"Authorization": f"Bearer {token}"}, timeout=30).json())


def the_run(client: MlflowClient, name: str, status: str) -> Any:
    experiment = client.get_experiment_by_name("digits")
    assert experiment
    (found,) = client.search_runs([experiment.experiment_id], f"run_name = '{name}' AND status = '{status}'")
    return found


def test_everything_answers_on_loopback_alone(environment: dict[str, str], home: Path) -> None:
    said = run([sys.executable, CONTROL, "status"], environment)
    assert re.findall(r"^(\S+) +up ", said, re.MULTILINE) == [
        "postgres", "spark-master", "ray-head", "mlflow", "spark-worker-1", "spark-worker-2", "ray-node",
    ]  # fmt: skip
    from sessions import of_session, started_by

    leaders = [json.loads(file.read_text())["process"] for file in (home / ".cluster/pids").iterdir()]
    ours = {pid for leader in leaders for pid in [*of_session(leader), *(child.pid for child in started_by(leader))]}
    listening = re.findall(r"LISTEN +\d+ +\d+ +(\S+):\d+ .*?pid=(\d+)", run(["ss", "-ltnp"], environment))
    assert {address for address, pid in listening if int(pid) in ours} <= {"127.0.0.1", "[::ffff:127.0.0.1]"}
    for file in (home / ".cluster/secrets").iterdir():
        assert file.stat().st_mode & 0o77 == 0 or file.name in PLANTED


def test_whoever_has_no_password_or_token_is_refused(environment: dict[str, str]) -> None:
    import requests

    assert (
        requests.get(f"{environment['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments/get?experiment_id=0", timeout=30).status_code == 401
    )
    assert requests.get(f"{environment['RAY_API_SERVER_ADDRESS']}/api/jobs/", timeout=30).status_code == 401
    said = run([sys.executable, SUBMIT, "--", "true"], {**environment, "RAY_AUTH_TOKEN_PATH": "/dev/null"}, 1)
    assert "no Ray takes jobs at" in said and "Traceback" not in said


def test_raw_data_to_a_tracked_model_on_two_workers_and_two_nodes(environment: dict[str, str], client: MlflowClient, home: Path) -> None:
    with watched_command_lines() as leaks:
        run(["spark-submit", "jobs/etl.py", "conf/digits.yaml"], environment)
        run([sys.executable, SUBMIT, "--name", "whole", *TRAIN, "--train.epochs", "2"], environment)
    assert leaks == []
    etl, training = the_run(client, "digits-etl", "FINISHED"), the_run(client, "digits", "FINISHED")
    application = etl.data.tags["spark.application_id"]
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert f"executor {application}/" in (home / f".cluster/logs/{worker}.log").read_text()
    assert training.data.tags["spark.application_id"] == application
    assert training.data.tags["ray.submission_id"] == "whole"
    assert "test/accuracy" in training.data.metrics
    actors = asked(f"{environment['RAY_API_SERVER_ADDRESS']}/api/v0/actors?detail=1&limit=1000", environment)["data"]["result"]["result"]
    assert len({actor["node_id"] for actor in actors if actor["class_name"] == "RayTrainWorker"}) == 2


def test_a_job_ends_as_it_ended(environment: dict[str, str]) -> None:
    said = run([sys.executable, SUBMIT, *TRAIN, "--train.lr", "-1"], environment, 2)
    assert "--train.lr: Input should be greater than 0 (got -1)" in said
    said = run([sys.executable, SUBMIT, "--follow", "nobody"], environment, 1)
    assert "`ray job list` shows the jobs it has" in said


def test_a_stopped_job_is_killed_and_goes_on_with_the_same_command(environment: dict[str, str], client: MlflowClient, home: Path) -> None:
    for name, said in (("first", "begins"), ("second", "goes on")):
        command = [sys.executable, SUBMIT, "--name", name, *TRAIN, "--train.epochs", "999", "--train.checkpoint.every_steps", "50"]
        log = home / f"{name}.log"
        with log.open("w") as output, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output) as job:
            while "epoch " not in log.read_text():
                assert job.poll() is None, log.read_text()
                time.sleep(0.5)
            run(["ray", "job", "stop", name], environment)
            assert job.wait() == 128 + signal.SIGTERM
        stopped = the_run(client, "digits", "KILLED")
        assert f"run {stopped.info.run_id} {said}" in log.read_text()
        assert "which is saved: the same command goes on from there" in log.read_text()
        assert stopped.data.tags["ray.submission_id"] == name


def test_p8_the_secrets_are_in_no_log_no_run_and_no_manifest(environment: dict[str, str], client: MlflowClient, home: Path) -> None:
    """After all of the above."""
    experiment = client.get_experiment_by_name("digits")
    assert experiment
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 3
    told = {f"run {one.info.run_id}": str(one.to_dictionary()) for one in runs}
    told["Ray's description of the jobs"] = run(["ray", "job", "list"], environment)
    kept = [home / ".cluster/secrets", home / ".cluster/conf", home / ".cluster/postgres"]
    files = [
        file
        for folder in (home, ray_folder(home))
        for file in folder.rglob("*")
        if file.is_file() and not any(file.is_relative_to(own) for own in kept)
    ]
    assert any(file.name == "manifest.json" for file in files) and len(files) > 50
    told.update({str(file): file.read_bytes().decode(errors="replace") for file in files})
    assert [(place, name) for place, text in told.items() for name, secret in PLANTED.items() if secret in text] == []


def test_what_died_comes_back_with_the_next_start(environment: dict[str, str], home: Path) -> None:
    leader = json.loads((home / ".cluster/pids/spark-worker-1").read_text())["process"]
    os.kill(leader, signal.SIGKILL)
    said = run([sys.executable, CONTROL, "status"], environment, 1)
    assert re.findall(r"^(\S+) +down ", said, re.MULTILINE) == ["spark-worker-1"]
    said = run([sys.executable, CONTROL, "up"], environment)
    assert re.findall(r"^(\S+-\S+|postgres|mlflow) ", said, re.MULTILINE) == ["spark-worker-1"]
    run([sys.executable, CONTROL, "status"], environment)

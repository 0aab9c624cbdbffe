"""A cluster of servers on this machine, used as its users do: by the tools' own commands, one after the other."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from browser import assert_browsed
from clusters import CONTROL, PLANTED, ROOT, SUBMIT, TRAIN, assert_served, cluster, ray_folder, ray_says, run, the_run
from mlflow import MlflowClient
from waiting import wait_until

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def leaks() -> Iterator[list[str]]:
    """Command lines that hold a planted secret at any moment of these tests, the cluster's start among them."""
    leaked_lines, stop = [], Event()

    def look() -> None:
        while not stop.wait(0.2):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    line = file.read_text(errors="replace")
                    leaked_lines.extend([line] if any(secret in line for secret in PLANTED.values()) else [])

    thread = Thread(target=look)
    thread.start()
    try:
        yield leaked_lines
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def environment(home: Path, leaks: list[str]) -> Iterator[dict[str, str]]:
    with cluster(home) as environment:
        yield environment


def installed_monitoring() -> list[str]:
    """The servers that `up` also starts on this machine."""
    if not shutil.which("prometheus"):
        return []
    return ["textfiles", "prometheus", *(["grafana"] if shutil.which("grafana-server") else [])]


def test_everything_answers_on_loopback_alone(environment: dict[str, str], home: Path) -> None:
    output = run([sys.executable, CONTROL, "status"], environment)
    assert re.findall(r"^(\S+) +up ", output, re.MULTILINE) == [
        "postgres", "spark-master", "ray-head", "mlflow", "spark-worker-1", "spark-worker-2", "ray-node",
        *installed_monitoring(),
    ]  # fmt: skip
    from sessions import offspring_outside, session_pids

    leaders = [json.loads(file.read_text())["process"] for file in (home / ".cluster/pids").iterdir()]
    pids = {pid for leader in leaders for pid in [*session_pids(leader), *(child.pid for child in offspring_outside(leader))]}
    listening = re.findall(r"LISTEN +\d+ +\d+ +(\S+):\d+ .*?pid=(\d+)", run(["ss", "-ltnp"], environment))
    addresses = {address for address, pid in listening if int(pid) in pids}
    assert "127.0.0.1" in addresses and addresses <= {"127.0.0.1", "[::ffff:127.0.0.1]"}
    for file in (home / ".cluster/secrets").iterdir():
        assert file.stat().st_mode & 0o77 == 0 or file.name in PLANTED
    assert (home / ".cluster/logs").stat().st_mode & 0o77 == 0


def test_whoever_has_no_password_or_token_is_refused(environment: dict[str, str]) -> None:
    import requests

    assert (
        requests.get(f"{environment['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments/get?experiment_id=0", timeout=30).status_code == 401
    )
    assert requests.get(f"{environment['RAY_API_SERVER_ADDRESS']}/api/jobs/", timeout=30).status_code == 401
    output = run([sys.executable, SUBMIT, "--", "true"], {**environment, "RAY_AUTH_TOKEN_PATH": "/dev/null"}, 1)
    assert "no Ray accepts jobs at" in output and "Traceback" not in output


def test_raw_data_to_a_tracked_model_on_two_workers_and_two_nodes(environment: dict[str, str], client: MlflowClient, home: Path) -> None:
    run(["spark-submit", "jobs/etl.py", "conf/digits.yaml"], environment)
    run(["ray", "job", "submit", "--submission-id", "whole", "--working-dir", ".", *TRAIN, "--train.epochs", "2"], environment)
    etl, training = the_run(client, "etl", "FINISHED"), the_run(client, "training", "FINISHED")
    application = etl.data.tags["spark.application_id"]
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert f"executor {application}/" in (home / f".cluster/logs/{worker}.log").read_text()
    assert training.data.tags["spark.application_id"] == application
    assert training.data.tags["ray.submission_id"] == "whole"
    assert "test/accuracy" in training.data.metrics
    actors = ray_says("api/v0/actors?detail=1&limit=1000", environment)["data"]["result"]["result"]
    assert len({actor["node_id"] for actor in actors if actor["class_name"] == "RayTrainWorker"}) == 2


def test_the_run_is_browsed_in_mlflow_s_pages(environment: dict[str, str], client: MlflowClient) -> None:
    assert_browsed(the_run(client, "training", "FINISHED"), environment)


def test_the_model_is_served_from_the_server_s_artifacts(environment: dict[str, str], client: MlflowClient, tmp_path: Path) -> None:
    assert_served(the_run(client, "training", "FINISHED"), environment, tmp_path)


def test_a_job_ends_as_it_ended(environment: dict[str, str]) -> None:
    output = run([sys.executable, SUBMIT, *TRAIN, "--train.lr", "-1"], environment, 2)
    assert "--train.lr: must be greater than 0 (got -1)" in output
    output = run([sys.executable, SUBMIT, "--follow", "nobody"], environment, 1)
    assert "`ray job list` shows its jobs" in output


@contextmanager
def submitted(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that shows a training, from the first epoch that it tells of."""
    with log.open("w") as output, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output) as job:

        def trains() -> bool:
            assert job.poll() is None, log.read_text()
            return "epoch " in log.read_text()

        wait_until(trains, "an epoch of the training", 240, say=log.read_text, pause_seconds=0.5)
        yield job


def test_a_job_outlives_its_terminal_is_followed_and_stopped_and_goes_on_with_the_same_command(
    environment: dict[str, str], client: MlflowClient, home: Path
) -> None:
    for name, first_words in (("first", "starts"), ("second", "resumes")):
        command = [sys.executable, SUBMIT, "--name", name, *TRAIN, "--train.epochs", "999", "--train.checkpoint.every_steps", "50"]
        command = ["env", "--default-signal=HUP", *command]  # tests that run under nohup hand on that it is ignored
        log = home / f"{name}.log"
        with submitted(command, environment, log) as job:
            job.send_signal(signal.SIGHUP)
            assert job.wait() == -signal.SIGHUP
        with submitted([sys.executable, SUBMIT, "--follow", name], environment, log) as job:
            run(["ray", "job", "stop", name], environment)
            assert job.wait() == 128 + signal.SIGTERM
        stopped = the_run(client, "training", "KILLED")
        assert f"run {stopped.info.run_id} {first_words}" in log.read_text()
        assert "run the same command to resume" in log.read_text()
        assert stopped.data.tags["ray.submission_id"] == name
        assert re.fullmatch("[0-9a-f]{40}(-dirty)?", stopped.data.tags["git.commit"])


def test_p8_the_secrets_are_in_no_command_line_no_log_no_run_and_no_manifest(
    environment: dict[str, str], client: MlflowClient, home: Path, leaks: list[str]
) -> None:
    """After all of the above."""
    assert leaks == []
    experiment = client.get_experiment_by_name("digits")
    assert experiment
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 3
    texts = {f"run {run_entry.info.run_id}": str(run_entry.to_dictionary()) for run_entry in runs}
    texts["Ray's description of the jobs"] = run(["ray", "job", "list"], environment)
    secret_folders = [home / ".cluster/secrets", home / ".cluster/conf", home / ".cluster/postgres"]
    files = [
        file
        for folder in (home, ray_folder(home))
        for file in folder.rglob("*")
        if file.is_file() and not any(file.is_relative_to(secret_folder) for secret_folder in secret_folders)
    ]
    assert any(file.name == "manifest.json" for file in files) and len(files) > 50
    texts.update({str(file): file.read_bytes().decode(errors="replace") for file in files})
    assert [(place, name) for place, text in texts.items() for name, secret in PLANTED.items() if secret in text] == []


def test_what_died_comes_back_with_the_next_start(environment: dict[str, str], home: Path) -> None:
    killed = ["spark-worker-1", "ray-node"]
    for server in killed:
        os.kill(json.loads((home / ".cluster/pids" / server).read_text())["process"], signal.SIGKILL)
    output = run([sys.executable, CONTROL, "status"], environment, 1)
    assert re.findall(r"^(\S+) +down ", output, re.MULTILINE) == killed
    output = run([sys.executable, CONTROL, "up"], environment)
    assert sorted(re.findall(r"^(\S+-\S+|postgres|mlflow) ", output, re.MULTILINE)) == sorted(killed)
    run([sys.executable, CONTROL, "status"], environment)

"""The cluster on five hosts with addresses of their own, one of which is cut off in the middle of everything."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import hosts
import pytest
from browser import assert_browsed
from clusters import CONTROL, ROOT, SUBMIT, TRAIN, assert_served, cluster, find_run_id, ray_says, run
from mlflow import MlflowClient
from mlflow.entities import Run

from pipelines.tracking.training import FOLDER
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory

RUNS_ON = {
    "postgres": "database",
    "mlflow": "mlflow",
    "spark-master": "head",
    "ray-head": "head",
    "spark-worker-1": "one",
    "spark-worker-2": "two",
    "ray-node": "two",
}
CUT_SECONDS = 30
ROWS = 4_000_000
EXACT = ["--train.strategy", "exact", "--train.epochs", "120", "--train.checkpoint.every_seconds", "2"]

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(hosts.missing()), reason=hosts.missing()),
]


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, hosts.Host]]:
    with hosts.hosts(list(dict.fromkeys(RUNS_ON.values()))) as network_hosts:
        yield {host.name: host for host in network_hosts}


@pytest.fixture(scope="module")
def environment(home: Path, network: dict[str, hosts.Host]) -> Iterator[dict[str, str]]:
    with cluster(home, {server: network[name].description() for server, name in RUNS_ON.items()}) as environment:
        yield environment


@pytest.fixture(scope="module")
def digits(environment: dict[str, str], network: dict[str, hosts.Host]) -> None:
    """The dataset version that is trained on."""
    run([*network["head"].enter, "spark-submit", "jobs/etl.py", "conf/digits.yaml"], environment)


@contextmanager
def started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[tuple[subprocess.Popen[bytes], IO[str]]]:
    """A command that has to succeed by the end of the block, and what it prints."""
    with log.open("w") as output, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output) as job:
        try:
            with log.open() as printed:
                yield job, printed
            assert job.wait() == 0, log.read_text()[-4000:]
        finally:
            job.kill()


def wait_for(text: str, printed: IO[str], seconds: float = 240) -> None:
    deadline, text_so_far = time.monotonic() + seconds, ""
    while text not in text_so_far:
        text_so_far += printed.read()
        assert time.monotonic() < deadline, text_so_far[-4000:]
        time.sleep(0.2)


def version_made_by(output: str) -> dict[str, Any]:
    """Its manifest."""
    (root,) = re.findall(r"^(\S+): train [\d,]+", output, re.MULTILINE)
    return dict(json.loads((Path(root) / "manifest.json").read_text()))


def find_run(client: MlflowClient, output: str) -> Run:
    """Find a training's run by what it printed."""
    return client.get_run(find_run_id(output))


def alive(environment: dict[str, str]) -> list[str]:
    """Ray's nodes."""
    summary = ray_says("nodes?view=summary", environment)
    return [node["raylet"]["nodeName"] for node in summary["data"]["summary"] if node["raylet"]["state"] == "ALIVE"]


def losses(run: Run) -> dict[int, float]:
    """Of every step that counts, as the run's own folder has them."""
    step_losses = read_digest_log(RunDirectory(run.data.tags[FOLDER])).losses
    assert sorted(step_losses) == list(range(1, len(step_losses) + 1))
    return step_losses


def test_every_server_is_reached_at_its_own_host_s_address(environment: dict[str, str], network: dict[str, hosts.Host]) -> None:
    output = run([sys.executable, CONTROL, "status"], environment)
    addresses = dict(re.findall(r"^(\S+) +up +(?:\w+://)?([\d.]+)", output, re.MULTILINE))
    assert addresses == {server: network[name].address for server, name in RUNS_ON.items()}


def test_p2_an_etl_of_which_a_host_was_cut_off_makes_the_same_version(
    environment: dict[str, str], network: dict[str, hosts.Host], client: MlflowClient, home: Path
) -> None:
    conf = home / "linear.yaml"
    conf.write_text((ROOT / "conf/linear.yaml").read_text().replace("range(1000000)", f"range({ROWS})"))
    etl = [*network["head"].enter, "spark-submit", "jobs/etl.py", str(conf), "--dataset.path"]
    expected = version_made_by(run([*etl, str(home / "whole")], environment))
    with started([*etl, str(home / "cut")], environment, home / "etl.log") as (job, printed):
        wait_for("spark  ", printed)
        time.sleep(5)
        assert job.poll() is None, "the ETL was over before its host was cut off; raise ROWS"
        with network["two"].cut_off():
            time.sleep(CUT_SECONDS)
    cut = version_made_by((home / "etl.log").read_text())
    assert cut["digest"] == expected["digest"]
    application = client.get_run(cut["run_id"]).data.tags["spark.application_id"]
    assert f"executor {application}/" in (home / ".cluster/logs/spark-worker-2.log").read_text()
    lost_worker = rf"Removing worker-\S+-{re.escape(network['two'].address)}-\d+ because we got no heartbeat"
    assert re.search(lost_worker, (home / ".cluster/logs/spark-master.log").read_text())


def test_p5_a_training_of_which_a_host_was_cut_off_makes_the_same_model(
    environment: dict[str, str], network: dict[str, hosts.Host], client: MlflowClient, home: Path, digits: None
) -> None:
    train = [*network["head"].enter, sys.executable, SUBMIT, *TRAIN, *EXACT]
    expected = find_run(client, run(train, environment))
    with started(train, environment, home / "cut.log") as (job, printed):
        wait_for("epoch ", printed)
        with network["two"].cut_off():
            back = time.monotonic() + CUT_SECONDS
            while "ray-node" in alive(environment):
                assert time.monotonic() < back, "Ray has not noticed that a host was gone"
                time.sleep(0.2)
            gone_seconds = CUT_SECONDS - (back - time.monotonic())
            assert gone_seconds < 20, f"Ray gave the node up after {gone_seconds:.1f} s; docs/how-to/cluster.md says 10"
            time.sleep(max(0.0, back - time.monotonic()))
            assert job.poll() is None, "the training was over before its host was back"
    cut = find_run(client, (home / "cut.log").read_text())
    assert "restarting: " in (home / ".cluster/logs/ray-node.log").read_text()
    assert losses(cut) == losses(expected)
    assert cut.data.tags["model.digest"] == expected.data.tags["model.digest"]


def test_the_run_is_browsed_and_its_model_served(environment: dict[str, str], client: MlflowClient, home: Path, tmp_path: Path) -> None:
    training = find_run(client, (home / "cut.log").read_text())
    assert_served(training, environment, tmp_path)
    assert_browsed(training, environment)


def test_two_hosts_and_one_have_the_same_losses(
    environment: dict[str, str], network: dict[str, hosts.Host], client: MlflowClient, digits: None
) -> None:
    several = run([*network["head"].enter, sys.executable, SUBMIT, *TRAIN], environment)
    alone = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    single = run([sys.executable, *TRAIN[2:]], alone)
    expected, actual = (losses(find_run(client, output)) for output in (single, several))
    assert actual == pytest.approx(expected, rel=1e-4)

"""cluster/slurm/train.sbatch on a real Slurm, whose two nodes are hosts with addresses of their own."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hosts
import pytest
import slurms
from clusters import ROOT, new_home, run
from mlflow import MlflowClient

MISSING = hosts.missing() or slurms.missing()
SUBMIT = ["sbatch", "--cpus-per-task=1", "--output=%x-%j.log"]

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with new_home() as folder:
        yield folder


@pytest.fixture(scope="module")
def environment(home: Path) -> Iterator[dict[str, str]]:
    """What a user of Slurm has, and a dataset version to train on."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SPARK_", "PYSPARK_", "MLFLOW_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own.update(LOCKSTEP_HOME=str(home), PATH=path, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1")
    run(["spark-submit", "jobs/etl.py", "conf/digits.yaml"], own)
    (home / "slurm").mkdir()
    with hosts.hosts(["one", "two"]) as nodes, slurms.slurm(home / "slurm", nodes) as variables:
        yield {**own, **variables}


def submitted(environment: dict[str, str], home: Path, *flags: str) -> tuple[str, Path]:
    """The job's number, and the file of what it prints."""
    command = [*SUBMIT, f"--chdir={ROOT}", f"--output={home}/%j.log", "cluster/slurm/train.sbatch", "conf/digits.yaml", *flags]
    (number,) = re.findall(r"Submitted batch job (\d+)", run(command, environment))
    return number, home / f"{number}.log"


def ended(number: str, environment: dict[str, str]) -> dict[str, str]:
    """What Slurm has of the job, once it is over."""
    while True:
        said = dict(re.findall(r"(\S+?)=(\S*)", run(["scontrol", "show", "job", number], environment)))
        if said["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"):
            return said
        time.sleep(1)


def status_of(log: Path, home: Path) -> str:
    (run_id,) = re.findall(r"run (\w+) (?:begins|goes on)", log.read_text())
    return str(MlflowClient(f"sqlite:///{home}/mlflow.db").get_run(run_id).info.status)


def test_it_trains_on_all_nodes_of_the_allocation(environment: dict[str, str], home: Path) -> None:
    number, log = submitted(environment, home, "--train.workers", "2", "--train.epochs", "2")
    told = ended(number, environment)
    assert (told["JobState"], told["ExitCode"], told["NumNodes"]) == ("COMPLETED", "0:0", "2"), log.read_text()[-4000:]
    assert status_of(log, home) == "FINISHED"


def test_a_bad_setting_ends_the_job_with_the_training_s_code(environment: dict[str, str], home: Path) -> None:
    number, log = submitted(environment, home, "--train.lr", "-1")
    told = ended(number, environment)
    assert (told["JobState"], told["ExitCode"]) == ("FAILED", "2:0"), log.read_text()[-4000:]
    assert "--train.lr: Input should be greater than 0 (got -1)" in log.read_text()


@pytest.mark.parametrize("stop", [["scancel"], ["scancel", "--signal=TERM", "--batch"]], ids=["scancel", "as before the time is up"])
def test_a_stopped_job_saves_and_goes_on(environment: dict[str, str], home: Path, stop: list[str]) -> None:
    number, log = submitted(environment, home, "--train.workers", "2", "--train.epochs", "9999")
    while not log.exists() or "epoch " not in log.read_text():
        time.sleep(0.5)
    subprocess.run([*stop, number], env=environment, check=True)
    ended(number, environment)
    assert "which is saved: the same command goes on from there" in log.read_text(), log.read_text()[-4000:]
    assert status_of(log, home) == "KILLED"

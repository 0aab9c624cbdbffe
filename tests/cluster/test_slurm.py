"""cluster/slurm/train.sbatch on a real Slurm, whose two nodes are hosts with addresses of their own."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hosts
import pytest
import slurms
from clusters import ROOT, find_run_id, new_home, plain_environment, run
from documents import below, reader_folder, type_block
from http_json import get_json
from loopback import free_port
from mlflow import MlflowClient
from sessions import process
from waiting import wait_until

MISSING = hosts.missing() or slurms.missing()

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(bool(MISSING), reason=MISSING)]

JOB_SECONDS = 420.0
"""Of a job, and of its start: a few times what they take."""


@contextmanager
def tracking_server(folder: Path) -> Iterator[str]:
    """MLflow on this machine, where the nodes reach it."""
    address = f"http://{hosts.GATEWAY}:{free_port()}"
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")]
    command = ["mlflow", "server", "--host", hosts.GATEWAY, "--port", address.rpartition(":")[2], "--workers", "1", *store]
    with (folder / "mlflow.log").open("w") as log, process(command, log, stop=signal.SIGTERM):
        experiment = f"{address}/api/2.0/mlflow/experiments/get?experiment_id=0"
        wait_until(lambda: get_json(experiment), "MLflow's server", 240, say=(folder / "mlflow.log").read_text)
        yield address


@pytest.fixture(scope="module")
def environment(home: Path) -> Iterator[dict[str, str]]:
    """What a user of Slurm has, and a dataset version to train on."""
    variables_of_user = plain_environment(home)
    (home / "slurm").mkdir()
    with hosts.hosts(["one", "two"]) as nodes, slurms.slurm(home / "slurm", nodes) as variables, tracking_server(home) as address:
        variables_of_user["MLFLOW_TRACKING_URI"] = address
        run(["spark-submit", "jobs/etl.py", "conf/digits.yaml"], variables_of_user)
        yield {**variables_of_user, **variables}


def submit(environment: dict[str, str], home: Path, *flags: str) -> tuple[str, Path]:
    """The job's number, and the file of what it prints."""
    command = [
        "sbatch",
        "--cpus-per-task=1",
        f"--chdir={ROOT}",
        f"--output={home}/%j.log",
        "cluster/slurm/train.sbatch",
        "conf/digits.yaml",
        *flags,
    ]
    (number,) = re.findall(r"Submitted batch job (\d+)", run(command, environment))
    return number, home / f"{number}.log"


def wait_for_end(number: str, environment: dict[str, str]) -> dict[str, str]:
    """What Slurm has of the job, once it is over."""

    def job_state() -> dict[str, str] | None:
        job = dict(re.findall(r"(\S+?)=(\S*)", run(["scontrol", "show", "job", number], environment)))
        return None if job["JobState"] in ("PENDING", "RUNNING", "COMPLETING") else job

    return wait_until(job_state, f"the end of Slurm's job {number}", JOB_SECONDS, pause_seconds=1.0) or {}


def run_status(log: Path, environment: dict[str, str]) -> str:
    return str(MlflowClient(environment["MLFLOW_TRACKING_URI"]).get_run(find_run_id(log.read_text())).info.status)


def test_it_trains_on_all_nodes_of_the_allocation(environment: dict[str, str], home: Path) -> None:
    number, log = submit(environment, home, "--train.workers", "2", "--train.epochs", "2")
    state = wait_for_end(number, environment)
    assert (state["JobState"], state["ExitCode"], state["NumNodes"]) == ("COMPLETED", "0:0", "2"), log.read_text()[-4000:]
    assert run_status(log, environment) == "FINISHED"


def test_p1_the_page_s_commands_train_as_they_are_typed(environment: dict[str, str]) -> None:
    """Where Slurm and MLflow are is what a site sets."""
    variables = {name: environment[name] for name in ("SLURM_CONF", "MLFLOW_TRACKING_URI")}
    (block,) = below("docs/how-to/cluster.md: Slurm")
    with new_home() as home, reader_folder(home) as folder:
        (number,) = re.findall(r"Submitted batch job (\d+)", type_block(block, folder, variables=variables))
        state, log = wait_for_end(number, environment), folder / f"lockstep-{number}.log"
        assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), log.read_text()[-4000:]
        assert run_status(log, environment) == "FINISHED"


def test_a_bad_setting_ends_the_job_with_the_training_s_code(environment: dict[str, str], home: Path) -> None:
    number, log = submit(environment, home, "--train.lr", "-1")
    state = wait_for_end(number, environment)
    assert (state["JobState"], state["ExitCode"]) == ("FAILED", "2:0"), log.read_text()[-4000:]
    assert "--train.lr: must be greater than 0 (got -1)" in log.read_text()


def test_a_stopped_job_goes_on_with_the_same_command(environment: dict[str, str], home: Path) -> None:
    """Signalled as before its time is up it saves; ended at once it has its last checkpoint."""
    gently, at_once = ["scancel", "--signal=TERM", "--batch"], ["scancel"]
    for stop, begun in ((gently, "starts"), (at_once, "resumes"), (gently, "resumes")):
        number, log = submit(environment, home, "--train.workers", "2", "--train.epochs", "9999")
        wait_until(lambda log=log: log.exists() and "epoch " in log.read_text(), f"an epoch of job {number}", JOB_SECONDS)
        subprocess.run([*stop, number], env=environment, check=True)
        wait_for_end(number, environment)
        text = log.read_text()
        assert re.search(rf"run \w+ {begun}: ", text), text[-4000:]
        if stop == gently:
            assert "run the same command to resume" in text, text[-4000:]
            assert run_status(log, environment) == "KILLED"

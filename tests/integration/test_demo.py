"""`make demo` as a user meets it, typed as the README has it: two real commands, a Ray, and what is left of them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import mlflow
import pytest
from chromium import GOOD, seen
from documents import demo_block, reader_folder, type_block
from mlflow.entities import Run
from other_ray import other_ray
from ray_head import answers, authorization

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "cluster/local/demo.py", "conf/digits.yaml"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A reader's checkout, where data, runs and mlflow.db go."""
    with reader_folder(tmp_path_factory.mktemp("home")) as folder:
        yield folder


@pytest.fixture(scope="module")
def environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # MLflow sets it in earlier tests.
    variables = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return {**variables, "LOCKSTEP_HOME": str(home), "PATH": path, "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def output(home: Path) -> str:
    """What the demo prints."""
    return type_block(demo_block(), home)


def find_training(home: Path, status: str) -> Run:
    client = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db")
    experiment = client.get_experiment_by_name("digits")
    assert experiment
    trainings = f"attributes.status = '{status}' AND tags.strategy LIKE '%'"
    (run,) = client.search_runs([experiment.experiment_id], trainings)
    return run


def running_commands(home: Path) -> list[str]:
    """Command lines of the processes that run with this LOCKSTEP_HOME."""
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"LOCKSTEP_HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                processes.append((process / "cmdline").read_text().replace("\0", " "))
        except (OSError, UnicodeDecodeError):
            continue  # it has ended meanwhile, or is not ours
    return processes


def test_p1_the_demo_makes_a_tracked_model(output: str, environment: dict[str, str], home: Path) -> None:
    run = find_training(home, "FINISHED")
    assert run.data.metrics["test/accuracy"] >= 0.97
    for line in (
        "$ spark-submit jobs/etl.py conf/digits.yaml",
        "$ python jobs/train.py conf/digits.yaml",
        f"run {run.info.run_id} of experiment digits",
        "make ui",
    ):
        assert line in output
    assert "incubator" not in output and "Runtime env" not in output, "a newcomer reads what matters"
    models = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db").search_logged_models([run.info.experiment_id])
    assert Path(models[0].artifact_location.removeprefix("file://")).is_relative_to(home)
    (lines,) = re.findall(r"^```python\n(import mlflow\n.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    answer = subprocess.run([sys.executable, "-c", lines], cwd=home, env=environment, capture_output=True, text=True, check=True).stdout
    assert "prediction" in answer and "refused" in answer


@pytest.mark.usefixtures("output")
def test_its_page_shows_the_digits_that_it_took_for_others(home: Path) -> None:
    page = Path(find_training(home, "FINISHED").info.artifact_uri.removeprefix("file://")) / "report.html"
    text = page.read_text()
    assert "Most wrong rows of split test" in text and "data:image/png;base64," in text and "worst_pictures" not in text
    assert page.stat().st_size < 5_000_000
    assert seen(page) == GOOD


@pytest.mark.full
@pytest.mark.usefixtures("output")
def test_a_ray_that_runs_already_is_used_and_left_alone(environment: dict[str, str], home: Path) -> None:
    """One that environment variables lead to."""
    with patch.dict(os.environ, environment, clear=True), other_ray() as address:
        printed = subprocess.run([*DEMO, "--train.epochs", "2"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert answers(address, authorization()), "the demo stopped a Ray that was not its own"
    assert "using the Ray at" in printed and "$ python cluster/submit.py -- python jobs/train.py" in printed
    (run_id,) = re.findall(r"^run (\w+) starts", printed, re.MULTILINE)
    run = mlflow.MlflowClient(f"sqlite:///{home}/mlflow.db").get_run(run_id)
    assert run.info.status == "FINISHED" and run.info.artifact_uri.startswith(f"file://{home}/"), "they went into the job's uploaded copy"


@pytest.mark.full
@pytest.mark.usefixtures("output")
def test_p8_an_interrupted_demo_stops_what_it_started_and_says_so(environment: dict[str, str], home: Path) -> None:
    """The dataset is up to date already."""
    command = [*DEMO, "--train.epochs", "1000"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        assert demo.stdout
        printed = ""
        while not (line := demo.stdout.readline()).startswith("epoch "):
            assert line, printed
            printed += line
        demo.send_signal(signal.SIGINT)
        printed += demo.stdout.read()
        assert demo.wait() == 128 + signal.SIGINT, printed
    assert "is up to date" in printed
    find_training(home, "KILLED")
    assert running_commands(home) == []

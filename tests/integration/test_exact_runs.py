"""Strategy `exact` on real data: one model for any number of workers, through kills; and a verification that tells."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from disturbing import act_at_step, workers
from mlflow import MlflowClient
from pyspark.sql import SparkSession
from raw import FOLDER, raw
from stores import new_store
from trainings import training

from pipelines.config import Config, load
from pipelines.config.train.base import BalanceSettings
from pipelines.data.versions.storage import seal, unseal
from pipelines.errors import TrackingError, TrainingError
from pipelines.etl.run import run
from pipelines.launch.training_run import Result, train
from pipelines.launch.verify import verify

ROOT = Path(__file__).parents[2]
STEPS = 3 * (3_000 // 64)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The datasets digits and adult, made from their real tables."""
    raw("adult")
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_RAW", str(FOLDER))
        for name in ("digits", "adult"):
            settings = {"dataset.path": str(home / "data" / name), "tracking.uri": new_store(home)}
            run(load(ROOT / "conf" / f"{name}.yaml", settings))
    return home


@pytest.mark.full
def test_p5_one_model_for_any_number_of_workers_and_through_kills(home: Path, tmp_path: Path) -> None:
    """The short form of `benchmarks.exact.against_ddp --tables matrix`: digits and adult on 1, 3 and 8 workers; one run killed
    twice and resized."""
    command = [sys.executable, "-m", "benchmarks.exact.against_ddp", "--tables", "matrix", "--small", "--home", home, "--results", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LOCKSTEP_RAW": str(FOLDER)}
    process = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stdout + process.stderr
    (tables,) = json.loads(next(tmp_path.glob("exact-matrix-*.json")).read_text())["tables"].values()
    for row in tables:
        digests = [row[key] for key in ("1", "3", "8", "killed and resized") if key in row]
        assert len(digests) in (2, 3) and len(set(digests)) == 1, row
    assert len({row["1"] for row in tables}) == len(tables) - 1, "the run that is killed is one of the others"


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> tuple[Config, Result]:
    """A run on two workers, one of which was killed."""
    folder = tmp_path_factory.mktemp("exact")
    config = training(folder, rows=3_000, task={"dropout": 0.2}, strategy="exact", workers=2, checkpoint={"every_steps": 40})

    def kill() -> None:
        workers()[0].kill()

    with act_at_step(config, 90, kill):
        return config, train(config)


def train_config(config: Config, **settings: Any) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update=settings)})


def runs_and_files(config: Config) -> dict[str, Any]:
    """MLflow's runs and the folders of runs, which a verification must not change."""
    client = MlflowClient(config.tracking.uri)
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    files = {file: file.stat().st_mtime_ns for file in Path(config.train.storage).rglob("*")}
    return {"runs": [(run.info.run_id, run.info.status, run.data.metrics, run.data.tags) for run in runs], "files": files}


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"workers": 1}, id="1 worker"),
        pytest.param({"workers": 3, "balance": BalanceSettings(kind="auto")}, id="3 workers", marks=pytest.mark.full),
    ],
)
def test_p5_a_run_is_verified_on_other_workers(
    exact: tuple[Config, Result], capsys: pytest.CaptureFixture[str], settings: dict[str, Any]
) -> None:
    config, result = exact
    before = runs_and_files(config)
    assert verify(train_config(config, **settings), result.run_id)
    output = capsys.readouterr().out
    assert f"identical: the losses of {STEPS} steps" in output and f"the model {result.model_digest}" in output
    after = runs_and_files(config)
    assert after["runs"] == before["runs"]
    folder = Path(config.train.storage)  # whose own time changes with the verification's folder in it
    assert {**after["files"], folder: 0} == {**before["files"], folder: 0}


def trail_files(config: Config) -> list[Path]:
    return sorted(Path(config.train.storage).glob("*/trail/step-*.json"))


@contextmanager
def alter_file(file: Path, **values: Any) -> Iterator[None]:
    content = file.read_bytes()
    file.write_bytes(seal({**unseal(content)[0], **values}))
    yield
    file.write_bytes(content)


@pytest.mark.full
def test_the_first_step_and_tensor_that_differ_are_named(exact: tuple[Config, Result], capsys: pytest.CaptureFixture[str]) -> None:
    config, result = exact
    first, second, *_ = trail_files(config)
    earlier, values = json.loads(first.read_text()), json.loads(second.read_text())
    step = values["step"] - 1
    losses = [*values["losses"][:-2], 1.25, values["losses"][-1]]
    digests = {**values["digests"], "model.layers.3.weight": "0" * 64, "optimizer.state.layers.3.weight.exp_avg": "0" * 64}
    with alter_file(second, losses=losses, digests=digests):
        assert not verify(train_config(config, workers=1), result.run_id)
    output = capsys.readouterr().out
    assert f"differs: step {step} is the first whose loss differs" in output and "and 1.25 in the run" in output
    assert f"after step {values['step']}, 2 tensors differ, the first is model.layers.3.weight; " in output
    assert f"; after step {earlier['step']} none did" in output


@contextmanager
def move_run(config: Config, run_id: str) -> Iterator[Config]:
    """Make the run look like a copy: its folder in another place, and MLflow without the tags that were set."""
    client, storage = MlflowClient(config.tracking.uri), Path(config.train.storage)
    tags = {name: value for name, value in client.get_run(run_id).data.tags.items() if not name.startswith("mlflow.")}
    moved_storage = storage.rename(storage.with_name("moved"))
    for name in tags:
        client.delete_tag(run_id, name)
    yield train_config(config, storage=str(moved_storage))
    moved_storage.rename(storage)
    for name, value in tags.items():
        client.set_tag(run_id, name, value)


@pytest.mark.full
def test_the_first_steps_of_a_moved_run_can_be_verified_alone_with_its_own_config(
    exact: tuple[Config, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    config, result = exact
    saved = json.loads(trail_files(config)[0].read_text())["step"]
    with move_run(config, result.run_id) as moved_config:
        assert verify(train_config(moved_config, workers=1, lr=0.5), result.run_id, steps=saved + 3)
    output = capsys.readouterr().out
    assert "train.lr was 0.01 in the run, which is used, and not 0.5" in output
    assert f"identical: the losses of {saved + 3} steps, model and optimizer after 1 saved steps ({saved})" in output
    assert "the model " not in output


@contextmanager
def set_run_tag(config: Config, run_id: str, tag: str, value: str) -> Iterator[None]:
    client = MlflowClient(config.tracking.uri)
    before = client.get_run(run_id).data.tags[tag]
    client.set_tag(run_id, tag, value)
    yield
    client.set_tag(run_id, tag, before)


@contextmanager
def set_logged_setting(config: Config, run_id: str, setting: str, value: str) -> Iterator[None]:
    """Change a setting of `train` in the config that MLflow has of the run."""
    folder = MlflowClient(config.tracking.uri).get_run(run_id).info.artifact_uri.removeprefix("file://")
    file = Path(folder, "config.json")
    content = file.read_text()
    values = json.loads(content)
    file.write_text(json.dumps({**values, "train": {**values["train"], setting: value}}))
    yield
    file.write_text(content)


def test_a_run_that_cannot_be_verified_is_an_error_that_says_why(exact: tuple[Config, Result]) -> None:
    config, result = exact
    with pytest.raises(TrackingError, match="has no run 0123; use the ID of a training"):
        verify(config, "0123")
    with (
        set_logged_setting(config, result.run_id, "strategy", "ddp"),
        pytest.raises(TrainingError, match="was trained with strategy ddp, whose weights depend on the number of workers"),
    ):
        verify(config, result.run_id)
    with (
        set_run_tag(config, result.run_id, "dataset.digest", "f" * 64),
        pytest.raises(TrainingError, match=r"was trained on dataset digest ffffffffffff, version 0000.*set dataset.path to the run's"),
    ):
        verify(config, result.run_id)
    client = MlflowClient(config.tracking.uri)
    client.update_run(result.run_id, "KILLED")
    with pytest.raises(TrainingError, match="is KILLED; only a FINISHED run can be verified"):
        verify(config, result.run_id)
    client.update_run(result.run_id, "FINISHED")

"""Weights of another run are tried on the model before Ray starts, and before a run is opened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import ray
import yaml
from filed import file_weights
from mlflow import MlflowClient
from torch import Tensor
from trainings import open_dataset, training

from pipelines import tracking
from pipelines.config import Config
from pipelines.errors import LockstepError, TrackingError, TrainingError
from pipelines.launch.initial_weights import has_initial_weights, initial_weights
from pipelines.launch.training_run import train
from pipelines.runtime.weights import from_bytes, model_digest, to_bytes
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.run_directory import INITIAL, RunDirectory

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("initial")
    training(folder)
    return folder


def random_weights(config: Config) -> dict[str, Tensor]:
    return dict(build_task(config.task, open_dataset(config).manifest).model().state_dict())


def flip_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def cases(config: Config) -> dict[str, tuple[str, type[LockstepError], str]]:
    """By name: what init_from is, the error, and words of it."""
    weights = random_weights(config)
    content, digest = to_bytes(weights), model_digest(weights)
    other = to_bytes(random_weights(training(Path(config.dataset.path).parent, task={"hidden": [32, 16]})))
    without = MlflowClient(config.tracking.uri)
    empty = without.create_run(without.create_experiment("empty")).info.run_id
    return {
        "no run": ("f00d" * 8, TrackingError, "train.init_from is f00d.*not found"),
        "no model": (empty, TrackingError, f"run {empty} has no model; use the ID of a training that MLflow shows as FINISHED"),
        "cut off": (file_weights(config, content[: len(content) // 2]), TrainingError, "whose weights cannot be read"),
        "not weights": (file_weights(config, b"<html>"), TrainingError, "whose weights cannot be read"),
        "one bit": (file_weights(config, flip_bit(content), digest), TrainingError, "whose weights are not the ones that it logged"),
        "another model": (file_weights(config, other), TrainingError, r"differ from this model's in layers\.2\.bias, layers\.2\.weight"),
    }


def test_weights_that_do_not_fit_are_refused_before_anything_starts(home: Path) -> None:
    config = training(home)
    for name, (origin, kind, message) in cases(config).items():
        with pytest.raises(kind, match=message) as refused:
            train(training(home, init_from=origin))
        assert "\n" not in str(refused.value), name
        assert not ray.is_initialized(), name
        assert MlflowClient(config.tracking.uri).get_experiment_by_name(config.experiment) is None, name


def test_weights_that_fit_are_taken_as_they_are(home: Path) -> None:
    config = training(home)
    weights = random_weights(config)
    origin = file_weights(config, to_bytes(weights), model_digest(weights))
    started = training(home, init_from=origin)
    content = initial_weights(started, open_dataset(started))
    assert content is not None
    assert content.fit is None and model_digest(from_bytes(content.content)) == model_digest(weights)
    assert initial_weights(config, open_dataset(config)) is None


@pytest.mark.full
def test_the_command_ends_with_one_line(home: Path, tmp_path: Path) -> None:
    config = training(home, init_from="f00d" * 8)
    file = tmp_path / "toy.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json", by_alias=True, exclude={"tracking": {"tags"}})))
    command, environment = [sys.executable, "jobs/train.py", str(file)], {**os.environ, "PYTHONPATH": str(ROOT)}
    job = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (job.returncode, len(job.stderr.splitlines())) == (TrackingError.exit_code, 1), job.stderr
    assert job.stderr.startswith("error: train.init_from is f00d")


def test_a_run_that_goes_on_keeps_what_it_began_with(home: Path) -> None:
    """The run it began from may be gone by then."""
    config = training(home, init_from="f00d" * 8)
    version = open_dataset(config)
    assert not has_initial_weights(config, version)
    run = tracking.open_training(config, version, {})
    run.end("KILLED")
    assert not has_initial_weights(config, version)
    RunDirectory(run.folder).put(INITIAL, b"kept")
    assert has_initial_weights(config, version)
    run.end("FINISHED")
    assert not has_initial_weights(config, version)

"""A training that starts from a file with a part of its weights, as MLflow, its page and a verification have it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from mlflow.artifacts import download_artifacts
from safetensors.torch import load_file, save_file
from trainings import open_dataset, training

from pipelines import api, tracking
from pipelines.config import Config
from pipelines.errors import TrainingError
from pipelines.launch.training_run import Result, train
from pipelines.launch.verify import verify
from pipelines.runtime.weights import from_bytes, model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.run_directory import INITIAL

pytestmark = pytest.mark.usefixtures("ray_cluster")

SETTINGS: dict[str, Any] = {"rows": 640, "epochs": 1, "strategy": "exact", "freeze": ["layers.0.*"], "lr_factors": {"layers.*": 0.5}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tuned")


@pytest.fixture(scope="module")
def file(home: Path) -> Path:
    """Weights in bf16, under other names, of a model with another second layer."""
    config = training(home, rows=640, task={"hidden": [32, 16]})
    model = build_task(config.task, open_dataset(config).manifest).model()
    save_file({f"base.{name}": values.bfloat16() for name, values in model.state_dict().items()}, home / "base.safetensors")
    return home / "base.safetensors"


def tuning(home: Path, file: Path, **changes: Any) -> Config:
    return training(home, init_from={"file": str(file), "strict": False, "rename": {"base\\.": ""}}, **{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def run(home: Path, file: Path) -> tuple[Config, Result]:
    config = tuning(home, file, workers=2)
    return config, train(config)


LINE = (
    "starts from {}: 3 of the model's 6 tensors are loaded; 3 stay as initialised: layers.2.weight (32, 32), layers.2.bias (32), "
    "layers.4.weight (1, 32); 3 others are unused: base.layers.2.bias (16), base.layers.2.weight (16, 32), base.layers.4.weight (1, 16); "
    "3 are cast from bfloat16 to float32"
)


@pytest.mark.full
def test_what_does_not_fit_is_said_and_filed(
    home: Path, file: Path, run: tuple[Config, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    config, result = run
    copy = file.with_name("copy.safetensors")
    copy.write_bytes(file.read_bytes())
    second = train(tuning(home, copy, workers=1))
    assert LINE.format(copy) in capsys.readouterr().out
    assert second.model_digest == result.model_digest, "neither the place of the file nor the workers matter"
    artifact = download_artifacts(run_id=result.run_id, artifact_path="init_from.json", tracking_uri=config.tracking.uri)
    filed = json.loads(Path(artifact).read_text())
    assert (filed["loaded"], len(filed["initialised"]), len(filed["unused"])) == (
        ["layers.0.bias", "layers.0.weight", "layers.4.bias"],
        3,
        3,
    )
    page = api.report(config.tracking.uri, result.run_id)
    assert str(file) in page and "3: layers.2.weight (32, 32), layers.2.bias (32), layers.4.weight (1, 32)" in page
    assert "layers.0.*" in page


@pytest.mark.full
def test_frozen_weights_are_logged_as_they_were(file: Path, run: tuple[Config, Result]) -> None:
    config, result = run
    contents, _ = tracking.download_weights(config.tracking.uri, result.run_id)
    weights, start = from_bytes(contents[0]), load_file(file)
    assert torch.equal(weights["layers.0.weight"], start["base.layers.0.weight"].float())
    assert not torch.equal(weights["layers.4.bias"], start["base.layers.4.bias"].float())
    assert model_digest(weights) == result.model_digest


@pytest.mark.full
def test_a_verification_reads_the_file_again_and_compares_its_digest(
    home: Path, file: Path, run: tuple[Config, Result], capsys: pytest.CaptureFixture[str]
) -> None:
    config, result = run
    (folder,) = Path(config.train.storage).glob(f"*-{result.run_id[:12]}")
    (folder / INITIAL).unlink()
    moved = file.with_name("moved.safetensors")
    moved.write_bytes(file.read_bytes())
    assert verify(tuning(home, moved, workers=1), result.run_id)
    assert "which is used, and not" not in capsys.readouterr().out
    weights = load_file(file)
    save_file({name: values + 1 for name, values in weights.items()}, moved)
    with pytest.raises(TrainingError, match=r"train.init_from.digest is \w{12}, but the weights in .*moved.safetensors have"):
        verify(tuning(home, moved, workers=1), result.run_id)


@pytest.mark.full
def test_servers_hold_what_is_trained_and_have_the_weights_of_exact(home: Path, file: Path) -> None:
    """The servers have no factors of the rate."""
    frozen = {"workers": 2, "lr_factors": {}, "freeze": ["layers.[02].*"]}
    by_exact, by_servers = (train(tuning(home, file, **frozen, strategy=kind)) for kind in ("exact", "parameter_server"))
    assert by_servers.model_digest == by_exact.model_digest

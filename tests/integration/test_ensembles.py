"""An ensemble of three runs, from their training to what an ensemble is for: predictions, an export, a verification and a statement."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ensembles import TREES, ensemble_config, member_config
from mlflow import MlflowClient
from trainings import FEATURES

from pipelines.config import Config
from pipelines.errors import ConfigError
from pipelines.launch.training_run import Result, train
from pipelines.launch.verify import verify
from pipelines.lifecycle.statements.finished_run import finished_training
from pipelines.serving.export.export_folder import export
from pipelines.serving.export.predict_program import Model
from pipelines.serving.model import load_model
from pipelines.tracking.training import ORIGIN_RUNS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ensembles")


@pytest.fixture(scope="module")
def members(folder: Path, ray_cluster: None) -> list[Result]:
    """A small network, a larger one, and trees."""
    settings = ({"strategy": "exact"}, {"workers": 2}, TREES)
    return [train(member_config(folder, number, **changes)) for number, changes in enumerate(settings)]  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def ensemble(folder: Path, members: list[Result]) -> tuple[Config, Result]:
    config = ensemble_config(folder, [member.run_id for member in members], workers=2)
    return config, train(config)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    x = np.random.default_rng(7).standard_normal((FEATURES, 100)).astype("float32")
    return pa.table({f"x{number}": values for number, values in enumerate(x)})


def test_it_is_a_run_like_any_other(ensemble: tuple[Config, Result], members: list[Result]) -> None:
    config, result = ensemble
    run = MlflowClient(config.tracking.uri).get_run(result.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags[ORIGIN_RUNS] == ", ".join(member.run_id for member in members)
    shares = [run.data.metrics[f"ensemble/share_{number}"] for number in (1, 2, 3)]
    assert sum(shares) == pytest.approx(1) and max(shares) < 1
    assert result.metrics["validation/auc"] > max(member.metrics["validation/auc"] for member in members)
    assert result.metrics["validation/auc"] > run.data.metrics["ensemble/best_member"]


def test_its_model_predicts_in_mlflow_and_in_an_export(folder: Path, ensemble: tuple[Config, Result], rows: pa.Table) -> None:
    config, result = ensemble
    predicted = load_model(config.tracking.uri, result.model).predict(rows.to_pandas())
    assert predicted["refused"].isna().all() and predicted["probability_true"].between(0, 1).all()
    placed = config.model_copy(update={"export": config.export.model_copy(update={"path": str(folder / "exports")})})
    exported = Model(export(placed, result.run_id, "onnx")).predict(rows.to_pylist())
    np.testing.assert_allclose([row["probability_true"] for row in exported], predicted["probability_true"], atol=1e-5)


def test_a_verification_chooses_the_same_members_on_another_number_of_workers(ensemble: tuple[Config, Result]) -> None:
    config, result = ensemble
    alone = config.model_copy(update={"train": config.train.model_copy(update={"workers": 1})})
    assert verify(alone, result.run_id)


def test_a_statement_names_the_members_with_their_digests(ensemble: tuple[Config, Result], members: list[Result]) -> None:
    config, result = ensemble
    with finished_training(config, result.run_id) as attested:
        named = {descriptor["name"]: descriptor.get("digest") for descriptor in attested.parts.dependencies}
    assert {name: digest for name, digest in named.items() if name.startswith("model/")} == {
        f"model/{member.run_id}": {"sha256": member.model_digest} for member in members
    }


def test_the_same_command_makes_the_same_model_again(ensemble: tuple[Config, Result]) -> None:
    config, result = ensemble
    repeated = train(config)
    assert repeated.run_id != result.run_id and repeated.model_digest == result.model_digest


def test_a_member_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^task\.of: .* has no run 0123; use the ID of a training"):
        train(ensemble_config(tmp_path, ["0123", "4567"]))

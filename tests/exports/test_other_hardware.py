"""Exports for FPGAs, TPUs and phones, run here: `make test-exports` installs what they need."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow as pa
import pytest
import torch
from exporting import Eigenvalues, Exported, model_of_many_encoders
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.plain import commit_arrays
from pipelines.data.versions.schema import TensorColumn, schema_to_text
from pipelines.errors import ExportError
from pipelines.exports.executorch.target import write as write_executorch
from pipelines.serving.export.export_folder import export
from pipelines.serving.export.subject import read_subject
from pipelines.serving.model import log_model
from pipelines.tasks.bind import build_task

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).parents[2]
XLA = Path(os.environ.get("LOCKSTEP_XLA") or ROOT / ".venv-xla/bin/python")
needs_xla = pytest.mark.skipif(not XLA.exists(), reason="make xla has not been run")
EXECUTORCH = Path(os.environ.get("LOCKSTEP_EXECUTORCH") or ROOT / ".venv-executorch/bin/python")
needs_executorch = pytest.mark.skipif(not EXECUTORCH.exists(), reason="make executorch has not been run")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return model_of_many_encoders(tmp_path_factory.mktemp("exported"))


def noise(folder: Path, network: str, shape: tuple[int, ...] = (3, 64, 64)) -> Config:
    table = {"format": "parquet", "path": "t"}
    features, target = {"image": {"encoder": "image", "shape": list(shape)}}, {"kind": "label"}
    settings = {"name": "noise", "source": {"tables": {"t": table}}, "task": {"kind": "vision", "network": network}}
    values = {**settings, "dataset": {"path": "data", "features": features, "target": target}}
    (folder / "noise.yaml").write_text(json.dumps(values))
    return load(folder / "noise.yaml", places(folder))


def places(folder: Path) -> dict[str, Any]:
    return {"dataset.path": str(folder / "data"), "tracking.uri": new_store(folder), "export.path": str(folder / "exports")}


def log_untrained_model(config: Config, folder: Path, rows: int) -> str:
    """The ID of a run of the config's network with random weights, and a dataset of images of noise."""
    random, (target,), settings = np.random.default_rng(0), config.dataset.target, config.dataset.encoders
    shape, classes = settings["image"].shape, list("0123456789")
    columns = {
        "image": random.integers(0, 256, (rows, *shape), np.uint8),
        target: random.integers(0, len(classes), rows).astype("int64"),
    }
    image = TensorColumn(name="image", dtype="uint8", shape=shape)
    kind = TensorColumn(name=target, dtype="int64", role="target", cardinality=len(classes))
    dumped = {name: section.model_dump(mode="json") for name, section in settings.items()}
    counted = {"classes": classes, "counts": [1] * len(classes)}
    encoders = {
        "image": FittedEncoder(feature=dumped["image"], inputs=("image",), state={}, column=image),
        target: FittedEncoder(feature=dumped[target], inputs=(target,), state=counted, column=kind),
    }
    return log_run(config, folder, columns, encoders, pa.schema([("image", pa.binary()), (target, pa.string())]))


def log_run(config: Config, folder: Path, columns: dict[str, np.ndarray], encoders: dict[str, FittedEncoder], schema: pa.Schema) -> str:
    """The ID of a run of the config's network with random weights, and a dataset with these columns as training and test split."""
    raw, splits = schema_to_text(schema), {"train": [columns], "test": [columns]}
    version = commit_arrays(config.dataset.path, splits, encoders, identity=config.data_identity, raw_schema=raw)
    torch.manual_seed(0)
    weights = build_task(config.task, version.manifest).model().state_dict()
    client = mlflow.MlflowClient(config.tracking.uri)
    run_id = client.create_run(client.create_experiment(config.name, artifact_location=f"{folder}/artifacts")).info.run_id
    log_model(config, version.manifest, weights, run_id)
    return str(run_id)


def report(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["model"]: row for row in json.loads((folder / "parity.json").read_text())["rows"]}


@needs_xla
def test_stablehlo_of_many_encoders_agrees_on_every_row(model: Exported) -> None:
    row = report(export(model.config, model.run_id, "stablehlo"))["stablehlo"]
    assert row["rows"] == len(model.raw) and row["equal_decisions"] == 1 and row["max_difference"] < 1e-4


@needs_xla
def test_stablehlo_of_resnet50_differs_by_less_than_a_thousandth(tmp_path: Path) -> None:
    config = load(ROOT / "conf/resnet50.yaml", places(tmp_path))
    row = report(export(config, log_untrained_model(config, tmp_path, 16), "stablehlo"))["stablehlo"]
    print(row)
    assert row["rows"] == 16 and row["max_difference"] <= 1e-3


@needs_executorch
def test_executorch_of_many_encoders_agrees_on_every_row(model: Exported) -> None:
    row = report(export(model.config, model.run_id, "executorch"))["executorch"]
    assert row["rows"] == len(model.raw) and row["equal_decisions"] == 1 and row["max_difference"] < 1e-4


@needs_executorch
@pytest.mark.parametrize(
    ("network", "shape", "rows_at_once"),
    [
        ("small", (3, 64, 64), 1),
        ("small", (3, 64, 64), 5),
        ("small", (1, 8, 8), 15),
        ("fedavg", (1, 28, 28), 5),
        ("resnet18", (3, 64, 64), 15),
    ],
)
def test_executorch_of_images_agrees(tmp_path: Path, network: str, shape: tuple[int, ...], rows_at_once: int) -> None:
    """The last batch has one row, as those of phones. The layout of an image with one channel is ambiguous."""
    config = noise(tmp_path, network, shape)
    config = config.model_copy(update={"export": config.export.model_copy(update={"max_batch_rows": rows_at_once})})
    row = report(export(config, log_untrained_model(config, tmp_path, 16), "executorch"))["executorch"]
    assert row["rows"] == 16 and row["equal_decisions"] == 1 and row["max_difference"] < 1e-4


@needs_executorch
def test_executorch_of_a_language_model_agrees_for_any_number_of_rows(tmp_path: Path) -> None:
    """Its tokens are uint16, which ExecuTorch cannot convert; the last batch has one row."""
    features, table = {"text": {"encoder": "bytes", "length": 16}}, {"format": "text", "path": "t"}
    settings = {"name": "noise", "source": {"tables": {"t": table}}, "task": {"kind": "language", "layers": 1, "heads": 2, "width": 16}}
    (tmp_path / "noise.yaml").write_text(json.dumps({**settings, "dataset": {"path": "data", "features": features}}))
    config = load(tmp_path / "noise.yaml", {**places(tmp_path), "export.max_batch_rows": 5})
    column = TensorColumn(name="text", dtype="uint16", shape=(17,), cardinality=257)
    feature = config.dataset.encoders["text"].model_dump(mode="json")
    encoders = {"text": FittedEncoder(feature=feature, inputs=("text",), state={}, column=column)}
    windows = {"text": np.random.default_rng(0).integers(0, 257, (16, 17), np.uint16)}
    run_id = log_run(config, tmp_path, windows, encoders, pa.schema([("text", pa.string())]))
    folder = export(config, run_id, "executorch")
    row = report(folder)["executorch"]
    assert row["rows"] == 16 and row["max_difference"] < 1e-3  # of 16 tokens, some 90 nats
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["inputs"][0]["dtype"] == "int32" and manifest["versions"]["executorch"]


@needs_executorch
def test_an_operator_that_executorch_lacks_is_named(model: Exported, tmp_path: Path) -> None:
    subject = replace(read_subject(model.config, model.run_id), network=Eigenvalues())
    with pytest.raises(ExportError, match=r"ExecuTorch has no operator for aten\._linalg_eigh.* of torch; .*docs/how-to/export"):
        write_executorch(subject, model.config.export, tmp_path)
    assert not list(tmp_path.iterdir())


def test_hls4ml_compares_precisions(model: Exported) -> None:
    pytest.importorskip("hls4ml", reason="pip install '.[hls4ml]' has not been done")
    settings = model.config.export.hls4ml.model_copy(update={"precisions": ("ap_fixed<6,3>", "ap_fixed<24,12>")})
    config = model.config.model_copy(update={"export": model.config.export.model_copy(update={"hls4ml": settings})})
    folder = export(config, model.run_id, "hls4ml")
    reports = report(folder)
    assert list(reports) == ["mlflow", "ap_fixed<24,12>", "ap_fixed<6,3>"]
    wide, narrow = reports["ap_fixed<24,12>"], reports["ap_fixed<6,3>"]
    assert wide["rows"] == settings.rows and wide["equal_decisions"] >= 0.98
    assert wide["max_difference"] < narrow["max_difference"] and narrow["weight_bits"] < wide["weight_bits"]
    assert list(folder.glob("hls/firmware/*.cpp"))
    notes = json.loads((folder / "manifest.json").read_text())["notes"]
    warning = "the network's inputs reach 255, but ap_fixed<6,3> holds numbers below 4 only"
    assert [note.partition(", and")[0] for note in notes if "inputs reach" in note] == [warning]


def test_a_network_that_hls4ml_lacks_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("hls4ml", reason="pip install '.[hls4ml]' has not been done")
    config = noise(tmp_path, "resnet18")
    run_id = log_untrained_model(config, tmp_path, 32)
    with pytest.raises(ExportError, match="hls4ml") as error:
        export(config, run_id, "hls4ml")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "exports").iterdir())

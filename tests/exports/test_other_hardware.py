"""Exports for FPGAs and TPUs, simulated here: `make test-exports` installs what they need."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow as pa
import pytest
import torch
from exporting import Exported, model_of_many_encoders
from stores import new_store

from pipelines.config import Config, parse
from pipelines.dataset.from_arrays import write_arrays
from pipelines.dataset.manifest import FittedEncoder
from pipelines.dataset.schema import TensorColumn, schema_to_text
from pipelines.errors import ExportError
from pipelines.export.run import export
from pipelines.learning import task_of
from pipelines.serve import log_model

pytestmark = pytest.mark.timeout(900)
XLA = Path(os.environ.get("LOCKSTEP_XLA") or Path(__file__).parents[2] / ".venv-xla/bin/python")
needs_xla = pytest.mark.skipif(not XLA.exists(), reason="make xla has not been run")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    before = mlflow.get_tracking_uri()
    yield model_of_many_encoders(tmp_path_factory.mktemp("exported"))
    mlflow.set_tracking_uri(before)


def images(folder: Path, network: str) -> tuple[Config, str]:
    """An untrained network on images of noise: its config, and the ID of its run."""
    config = parse(
        {
            "name": "noise",
            "source": {"tables": {"t": {"format": "parquet", "path": "t"}}},
            "dataset": {
                "path": str(folder / "data"),
                "features": {"image": {"encoder": "image", "shape": [3, 64, 64]}},
                "target": {"kind": "label"},
            },
            "task": {"kind": "vision", "network": network},
            "tracking": {"uri": new_store(folder)},
            "export": {"path": str(folder / "exports"), "rows_at_once": 16},
        },
        "test",
    )
    random = np.random.default_rng(0)
    rows = {"image": random.integers(0, 256, (32, 3, 64, 64), np.uint8), "kind": random.integers(0, 10, 32).astype("int64")}
    image = TensorColumn(name="image", dtype="uint8", shape=(3, 64, 64))
    kind = TensorColumn(name="kind", dtype="int64", role="target", cardinality=10)
    settings = {name: found.model_dump(mode="json") for name, found in config.dataset.encoders.items()}
    encoders = {
        "image": FittedEncoder(feature=settings["image"], inputs=("image",), state={}, column=image),
        "kind": FittedEncoder(
            feature=settings["kind"], inputs=("kind",), state={"classes": list("0123456789"), "counts": [3] * 10}, column=kind
        ),
    }
    raw = schema_to_text(pa.schema([("image", pa.binary()), ("kind", pa.string())]))
    version = write_arrays(str(folder / "data"), {"train": [rows], "test": [rows]}, encoders, identity=config.data_identity, raw_schema=raw)
    torch.manual_seed(0)
    weights = task_of(config.task, version.manifest).model().state_dict()
    client = mlflow.MlflowClient(config.tracking.uri)
    run_id = client.create_run(client.create_experiment("noise", artifact_location=f"{folder}/artifacts")).info.run_id
    log_model(config, version.manifest, weights, run_id)
    return config, str(run_id)


def report(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["model"]: row for row in json.loads((folder / "parity.json").read_text())["rows"]}


@needs_xla
def test_stablehlo_of_many_encoders_agrees_on_every_row(model: Exported) -> None:
    found = report(export(model.config, model.run_id, "stablehlo"))["stablehlo"]
    assert found["rows"] == len(model.raw) and found["equal_decisions"] == 1 and found["max_difference"] < 1e-4


@needs_xla
def test_stablehlo_of_resnet50_differs_by_less_than_a_thousandth(tmp_path: Path) -> None:
    config, run_id = images(tmp_path, "resnet50")
    found = report(export(config, run_id, "stablehlo"))["stablehlo"]
    print(found)
    assert found["rows"] == 32 and found["max_difference"] <= 1e-3


def test_hls4ml_compares_precisions(model: Exported) -> None:
    pytest.importorskip("hls4ml", reason="pip install '.[hls4ml]' has not been done")
    settings = model.config.export.hls4ml.model_copy(update={"precisions": ("ap_fixed<6,3>", "ap_fixed<16,6>")})
    config = model.config.model_copy(update={"export": model.config.export.model_copy(update={"hls4ml": settings})})
    folder = export(config, model.run_id, "hls4ml")
    found = report(folder)
    assert list(found) == ["mlflow", "ap_fixed<16,6>", "ap_fixed<6,3>"]
    wide, narrow = found["ap_fixed<16,6>"], found["ap_fixed<6,3>"]
    assert wide["rows"] == settings.rows and wide["equal_decisions"] >= 0.98
    assert wide["max_difference"] < narrow["max_difference"] and narrow["weight_bits"] < wide["weight_bits"]
    assert list(folder.glob("hls/firmware/*.cpp"))


def test_a_network_that_hls4ml_lacks_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("hls4ml", reason="pip install '.[hls4ml]' has not been done")
    config, run_id = images(tmp_path, "resnet18")
    with pytest.raises(ExportError, match="hls4ml") as error:
        export(config, run_id, "hls4ml")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "exports").iterdir())

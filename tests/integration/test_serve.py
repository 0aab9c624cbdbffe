"""The logged model predicts from raw rows what evaluation predicts from the rows that ETL encoded."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from fitting import gathered
from mlflow.pyfunc import PyFuncModel
from serving import model_server

import pipelines
from pipelines.config import Config, parse
from pipelines.config.dataset import Dataset
from pipelines.dataset.manifest import Manifest
from pipelines.dataset.schema import schema_to_text, to_numpy
from pipelines.errors import SourceError
from pipelines.features import Encoders, fit_encoders
from pipelines.learning import task_of
from pipelines.serve import Predictor, log_model
from pipelines.serve.model import software_of
from pipelines.serve.predictor import to_arrow

ROWS = 500
CONFIG: dict[str, Any] = {
    "name": "served",
    "source": {"tables": {"t": {"format": "parquet", "path": "t"}}},
    "dataset": {
        "path": "data",
        "features": {
            "age": {"encoder": "standardize", "impute": "median"},
            "age bin": {"encoder": "quantile", "column": "age", "bins": 8},
            "children": "minmax",
            "rooms": {"encoder": "log1p", "impute": 0},
            "place": {"encoder": "fourier", "columns": ["x", "y"], "frequencies": 4},
            "word": {"encoder": "vocabulary", "min_count": 2},
            "code": {"encoder": "hash", "buckets": 16},
            "member": {"encoder": "vocabulary"},
            "born": "vocabulary",
            "price": "normal_quantile",
            "pair": {"encoder": "identity", "shape": [2]},
            "pixels": {"encoder": "image", "shape": [1, 2, 2]},
        },
        "target": {"rich": "binary"},
    },
    "task": {"kind": "tabular", "hidden": [16]},
}


@dataclass(frozen=True)
class Served:
    config: Config
    manifest: Manifest
    raw: pa.Table
    weights: dict[str, torch.Tensor]
    uri: str
    run_id: str


def raw_rows() -> pa.Table:
    random = np.random.default_rng(0)
    words = np.array(["ant", "bee", "cat", "dög", "once"])[random.integers(0, 4, ROWS)]
    words[7] = "once"

    def some(values: np.ndarray) -> np.ndarray:
        return random.random(len(values)) < 0.1

    ages, rooms = random.integers(0, 99, ROWS), random.integers(0, 9, ROWS)
    return pa.table(
        {
            "age": pa.array(ages.astype(float), mask=some(ages)),
            "children": pa.array(random.integers(0, 5, ROWS), pa.int32()),
            "rooms": pa.array(rooms, pa.int64(), mask=some(rooms)),
            "x": pa.array(random.normal(size=ROWS), pa.float32()),
            "y": pa.array(random.normal(size=ROWS)),
            "word": pa.array(words, mask=some(words)),
            "code": pa.array(random.integers(0, 2**40, ROWS)),
            "member": pa.array(ages > 50, mask=some(ages)),
            "born": pa.array(20_000 - ages // 10, pa.int32()).cast(pa.date32()),
            "price": pa.array(np.round(random.lognormal(size=ROWS), 2)).cast(pa.decimal128(10, 2)),
            "pair": pa.array(random.normal(size=(ROWS, 2)).tolist()),
            "pixels": pa.array([bytes(row) for row in random.integers(0, 256, (ROWS, 4), np.uint8)]),
            "unused": pa.array(["left out"] * ROWS),
            "rich": pa.array(ages + random.normal(size=ROWS) > 50),
        }
    )


def manifest_of(dataset: Dataset, raw: pa.Table) -> Manifest:
    """The manifest of a version without parts, fitted to all rows."""
    statistics, profile = gathered(dataset, raw), {}
    for column, found in statistics.items():
        profile[column] = {} if found.mean is None else {"mean": found.mean}
        if found.counts is not None:
            profile[column] = {"most_frequent": dict(zip(*found.counts.slice(0, 3).to_pydict().values(), strict=True))}
    return Manifest(
        name="served",
        version="000000000000",
        digest="0" * 64,
        attempt="a",
        raw_schema=schema_to_text(raw.schema),
        encoders=fit_encoders(dataset, statistics, raw.schema),
        splits={},
        rows_parsed=len(raw),
        profile=profile,
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    config = parse({**CONFIG, "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"}}, "test")
    raw = raw_rows()
    manifest = manifest_of(config.dataset, raw)
    torch.manual_seed(0)
    weights = task_of(config.task, manifest).model().state_dict()
    client = mlflow.MlflowClient(config.tracking.uri)
    experiment = client.create_experiment("served", artifact_location=f"{folder}/artifacts")
    run_id = client.create_run(experiment).info.run_id
    client.log_metric(run_id, "test/auc", 0.5, step=3)
    before = mlflow.get_tracking_uri()
    yield Served(config, manifest, raw, weights, log_model(config, manifest, weights, run_id, step=3), run_id)
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="module")
def model(served: Served) -> PyFuncModel:
    return mlflow.pyfunc.load_model(served.uri)


def evaluated(served: Served) -> tuple[list[str], np.ndarray]:
    """Predictions and probabilities of the rows that ETL would have written, as evaluation makes them."""
    encoded, reasons = Encoders(served.manifest.encoders).encode(served.raw)
    assert reasons.null_count == ROWS
    batch = {
        column.name: torch.from_numpy(to_numpy(column, encoded[column.name].combine_chunks()).copy()) for column in served.manifest.columns
    }
    task = task_of(served.config.task, served.manifest)
    model = task.model().eval()
    model.load_state_dict(served.weights)
    with torch.inference_mode():
        predicted = task.predict(model(batch))
    return list(predicted["prediction"]), np.array(predicted["probability_true"])


def test_p7_predictions_from_raw_rows_equal_those_from_encoded_rows(served: Served, model: PyFuncModel) -> None:
    names, probabilities = evaluated(served)
    rows = served.raw.drop_columns(["rich"]).to_pandas()
    found = model.predict(rows.sample(frac=1, random_state=0)).sort_index()
    assert found["prediction"].tolist() == names
    np.testing.assert_allclose(found["probability_true"], probabilities, rtol=0, atol=1e-7)
    assert found["refused"].isna().all()
    assert len(set(names)) == 2


def test_p7_the_encoders_that_are_served_are_those_that_were_fitted(served: Served) -> None:
    predictor = Predictor(served.config.task, served.manifest, served.weights)
    rows = to_arrow(served.raw.to_pandas(), predictor.inputs)
    features = {name: fitted for name, fitted in served.manifest.encoders.items() if name != "rich"}
    encoded, _ = Encoders(features).encode(rows)
    assert encoded.equals(Encoders(served.manifest.encoders).encode(served.raw)[0].drop_columns("rich"))


def test_p7_the_signature_lists_the_raw_columns_and_not_the_target(model: PyFuncModel) -> None:
    signature = model.metadata.signature
    inputs = {column.name: str(column.type) for column in signature.inputs.inputs}
    assert inputs == {
        "age": "DataType.double",
        "children": "DataType.long",
        "rooms": "Any",
        "x": "DataType.double",
        "y": "DataType.double",
        "word": "DataType.string",
        "code": "Any",
        "member": "DataType.boolean",
        "born": "DataType.datetime",
        "price": "DataType.double",
        "pair": "Array(double)",
        "pixels": "DataType.binary",
    }
    assert signature.outputs.input_names() == ["prediction", "probability_false", "probability_true", "refused"]


def test_a_refused_row_has_a_reason_and_no_prediction(served: Served, model: PyFuncModel) -> None:
    rows = served.raw.slice(0, 4).to_pandas()
    rows.index = pd.Index(["a", "b", "c", "d"])
    rows.at["b", "x"] = np.nan
    rows.at["d", "pixels"] = b"xyz"
    found = model.predict(rows)
    assert found.index.tolist() == ["a", "b", "c", "d"]
    assert found["prediction"].isna().tolist() == [False, True, False, True]
    assert found["refused"].tolist()[1].startswith("place: fourier cannot encode x NULL, y ")
    assert found["refused"].tolist()[3] == "pixels: image cannot encode 3 bytes"
    assert model.predict(rows.loc[["b"]])["prediction"].isna().all()
    assert list(model.predict(rows.iloc[:0]).columns) == list(found.columns)


def test_missing_values_arrive_as_null(served: Served, model: PyFuncModel) -> None:
    rows = served.raw.slice(0, 2).to_pandas()
    rows["rooms"] = [np.nan, 3.0]  # as pandas has whole numbers with a NULL among them
    rows["word"] = [None, "never seen"]
    rows["member"] = pd.Series([None, True], dtype=object)
    assert model.predict(rows)["refused"].isna().all()


def test_columns_that_cannot_be_cast_are_named() -> None:
    schema = pa.schema([("n", pa.int32()), ("day", pa.date32())])
    with pytest.raises(SourceError, match="the rows have no column day; the model takes n, day"):
        to_arrow(pd.DataFrame({"n": [1]}), schema)
    with pytest.raises(SourceError, match="column n is int32, to which its values cannot be cast"):
        to_arrow(pd.DataFrame({"n": [1.5], "day": [pd.Timestamp("2026-01-01")]}), schema)


def test_the_model_is_filed_whole_and_unpickles_nothing(served: Served) -> None:
    folder = Path(mlflow.artifacts.download_artifacts(served.uri))
    files = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert {"artifacts/config.json", "artifacts/manifest.json", "artifacts/weights.safetensors", "code/pipelines/serve/model.py"} <= files
    assert not [file for file in files if file.endswith((".pkl", ".pt", ".pth", ".pyc"))]
    pinned = (folder / "requirements.txt").read_text().split()
    assert {f"torch=={torch.__version__.partition('+')[0]}", f"pyarrow=={pa.__version__}", f"mlflow=={mlflow.__version__}"} <= set(pinned)
    logged = mlflow.MlflowClient(served.config.tracking.uri).get_logged_model(served.uri.removeprefix("models:/"))
    assert (logged.source_run_id, [metric.value for metric in logged.metrics]) == (served.run_id, [0.5])
    run = mlflow.get_run(served.run_id)
    assert run.info.status == "RUNNING"  # whoever opened the run ends it
    assert logged.experiment_id == run.info.experiment_id


def test_a_task_of_the_users_own_is_filed_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "churn_tasks.py").write_text(
        "from typing import ClassVar\n"
        "from pipelines.config import TaskSettings\n"
        "class Churn(TaskSettings):\n"
        "    implementation: ClassVar[str] = 'churn_models:Churn'\n"
    )
    (tmp_path / "churn_models").mkdir()
    (tmp_path / "churn_models/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    settings = import_module("churn_tasks").Churn(kind="churn_tasks:Churn")
    code, requirements = software_of(settings)
    assert {str(tmp_path / "churn_tasks.py"), str(tmp_path / "churn_models")} < set(code)
    assert Path(pipelines.__file__).parent in map(Path, code)
    assert all("==" in requirement and "+" not in requirement for requirement in requirements)


def test_p7_it_serves_from_any_folder(served: Served, model: PyFuncModel, tmp_path: Path) -> None:
    example = json.loads(Path(mlflow.artifacts.download_artifacts(served.uri), "serving_input_example.json").read_text())
    with model_server(served.uri, tmp_path, {"MLFLOW_TRACKING_URI": served.config.tracking.uri}) as ask:
        answer = ask(example)
    (row,) = answer["predictions"]
    expected = model.predict(model.input_example).iloc[0]
    assert row["refused"] is None
    assert row["prediction"] == expected["prediction"]
    assert row["probability_true"] == pytest.approx(expected["probability_true"])

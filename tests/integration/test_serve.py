"""The logged model predicts from raw rows what evaluation predicts from the rows that ETL encoded."""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from filed import ROWS, Served, filed
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel
from serving import model_server

import pipelines
from pipelines.dataset.schema import to_numpy
from pipelines.errors import SourceError
from pipelines.features import Encoders
from pipelines.learning import task_of
from pipelines.serve import Predictor
from pipelines.serve.model import software_of
from pipelines.serve.predictor import to_arrow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    before = mlflow.get_tracking_uri()
    yield filed(tmp_path_factory.mktemp("served"))
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
        "age": "Any",
        "children": "Any",
        "rooms": "Any",
        "x": "Any",
        "y": "Any",
        "word": "DataType.string",
        "code": "Any",
        "member": "DataType.boolean",
        "born": "DataType.datetime",
        "price": "Any",
        "pair": "Array(Any)",
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


def test_whole_numbers_stand_for_others(served: Served, model: PyFuncModel) -> None:
    rows = served.raw.slice(0, 2).to_pandas()
    rows["x"], rows["y"], rows["price"] = [1, 2], [3, 2**60], [10, 20]
    rows["pair"] = [[1, 2], None]
    found = model.predict(rows)
    assert found["refused"].isna().tolist() == [True, False]
    floats = rows.assign(x=rows["x"].astype(float), y=rows["y"].astype(float), price=rows["price"].astype(float), pair=[[1.0, 2.0], None])
    pd.testing.assert_frame_equal(model.predict(floats), found)


@pytest.mark.parametrize(
    ("column", "values"), [("x", ["1", "2"]), ("x", [True, False]), ("children", [1.5, 2.0]), ("word", [1, 2]), ("pair", [["1", "2"]] * 2)]
)
def test_other_sorts_of_values_do_not(served: Served, model: PyFuncModel, column: str, values: list[Any]) -> None:
    rows = served.raw.slice(0, 2).to_pandas().assign(**{column: values})
    with pytest.raises((SourceError, MlflowException), match=rf"column {column}"):
        model.predict(rows)


def test_columns_that_cannot_be_cast_are_named() -> None:
    schema = pa.schema([("n", pa.int32()), ("day", pa.date32())])
    with pytest.raises(SourceError, match="the rows have no column day; the model takes n, day"):
        to_arrow(pd.DataFrame({"n": [1]}), schema)
    with pytest.raises(SourceError, match="the values of column n cannot be cast to int32"):
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


def test_a_task_and_an_encoder_of_the_users_own_are_filed_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "churn_tasks.py").write_text(
        "from typing import ClassVar\n"
        "from pipelines.config import TaskSettings\n"
        "class Churn(TaskSettings):\n"
        "    implementation: ClassVar[str] = 'churn_models:Churn'\n"
    )
    (tmp_path / "churn_models").mkdir()
    (tmp_path / "churn_models/__init__.py").touch()
    (tmp_path / "churn_encoders.py").write_text(
        "from typing import ClassVar\n"
        "from pipelines.config import EncoderSettings\n"
        "class Clip(EncoderSettings):\n"
        "    implementation: ClassVar[str] = 'churn_encoders:Other'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = import_module("churn_tasks").Churn(kind="churn_tasks:Churn")
    encoder = import_module("churn_encoders").Clip(encoder="churn_encoders:Clip")
    code, requirements = software_of(settings, [encoder])
    assert {str(tmp_path / name) for name in ("churn_tasks.py", "churn_models", "churn_encoders.py")} < set(code)
    assert Path(pipelines.__file__).parent in map(Path, code)
    assert all("==" in requirement and "+" not in requirement for requirement in requirements)


def test_p7_it_serves_from_any_folder(served: Served, model: PyFuncModel, tmp_path: Path) -> None:
    example = json.loads(Path(mlflow.artifacts.download_artifacts(served.uri), "serving_input_example.json").read_text())
    with model_server(served.uri, tmp_path, {"MLFLOW_TRACKING_URI": served.config.tracking.uri}) as ask:
        answer = ask(example)
        frame = json.loads(json.dumps(example))["dataframe_split"]
        place = frame["columns"].index("x")
        frame["data"][0][place] = 1
        whole = ask({"dataframe_split": frame})
    assert whole["predictions"][0]["refused"] is None
    (row,) = answer["predictions"]
    expected = model.predict(model.input_example).iloc[0]
    assert row["refused"] is None
    assert row["prediction"] == expected["prediction"]
    assert row["probability_true"] == pytest.approx(expected["probability_true"])

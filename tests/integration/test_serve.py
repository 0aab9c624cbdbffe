"""The logged model predicts from raw rows what evaluation predicts from the rows that ETL encoded."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from filed import ROWS, Served, file_model
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel, scoring_server
from serving import model_server, strictly_parsed
from starlette.testclient import TestClient

from pipelines.data.features import Encoders
from pipelines.data.versions.schema import to_numpy
from pipelines.errors import SourceError
from pipelines.serving.model import Predictor
from pipelines.serving.model.column_casts import fitting_rows, to_arrow
from pipelines.serving.model.logged_model import software_requirements
from pipelines.tasks.bind import build_task


@pytest.fixture(scope="module")
def mlflow_model(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return file_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module", autouse=True)
def logged_files(mlflow_model: Served) -> set[str]:
    """The files of the model, before a test loads it: then Python may write bytecode beside its code."""
    folder = Path(mlflow.artifacts.download_artifacts(mlflow_model.uri))
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def model(mlflow_model: Served) -> PyFuncModel:
    return mlflow.pyfunc.load_model(mlflow_model.uri)


def evaluate(mlflow_model: Served) -> tuple[list[str], np.ndarray]:
    """Predictions and probabilities of the rows that ETL would have written, as evaluation makes them."""
    encoded, reasons = Encoders(mlflow_model.manifest.encoders).encode(mlflow_model.raw)
    assert reasons.null_count == ROWS
    batch = {
        column.name: torch.from_numpy(to_numpy(column, encoded[column.name].combine_chunks()).copy())
        for column in mlflow_model.manifest.columns
    }
    task = build_task(mlflow_model.config.task, mlflow_model.manifest)
    model = task.model().eval()
    model.load_state_dict(mlflow_model.weights)
    with torch.inference_mode():
        predicted = task.predict(model(batch))
    return list(predicted["prediction"]), np.array(predicted["probability_true"])


def test_p7_predictions_from_raw_rows_equal_those_from_encoded_rows(mlflow_model: Served, model: PyFuncModel) -> None:
    names, probabilities = evaluate(mlflow_model)
    rows = mlflow_model.raw.drop_columns(["rich"]).to_pandas()
    predictions = model.predict(rows.sample(frac=1, random_state=0)).sort_index()
    assert predictions["prediction"].tolist() == names
    np.testing.assert_allclose(predictions["probability_true"], probabilities, rtol=0, atol=1e-7)
    assert predictions["refused"].isna().all()
    assert len(set(names)) == 2


def test_p7_the_encoders_that_are_served_are_those_that_were_fitted(mlflow_model: Served) -> None:
    predictor = Predictor(mlflow_model.config.task, mlflow_model.manifest, mlflow_model.weights)
    rows = to_arrow(mlflow_model.raw.to_pandas(), predictor.inputs)
    features = {name: fitted for name, fitted in mlflow_model.manifest.encoders.items() if name != "rich"}
    encoded, _ = Encoders(features).encode(rows)
    assert encoded.equals(Encoders(mlflow_model.manifest.encoders).encode(mlflow_model.raw)[0].drop_columns("rich"))


def test_p7_the_signature_lists_the_raw_columns_and_not_the_target(model: PyFuncModel) -> None:
    signature = model.metadata.signature
    inputs = {column.name: str(column.type) for column in signature.inputs.inputs}
    assert inputs == {
        "age": "Any",
        "children": "Any",
        "rooms": "Any",
        "x": "Any",
        "y": "Any",
        "word": "Any",
        "code": "Any",
        "member": "Any",
        "born": "DataType.datetime",
        "price": "Any",
        "pair": "Array(Any)",
        "pixels": "DataType.binary",
    }
    assert signature.outputs.input_names() == ["prediction", "probability_false", "probability_true", "refused"]


def test_a_refused_row_has_a_reason_and_no_prediction(mlflow_model: Served, model: PyFuncModel) -> None:
    rows = mlflow_model.raw.slice(0, 4).to_pandas()
    rows.index = pd.Index(["a", "b", "c", "d"])
    rows.at["b", "x"] = np.nan
    rows.at["d", "pixels"] = b"xyz"
    predictions = model.predict(rows)
    assert predictions.index.tolist() == ["a", "b", "c", "d"]
    assert predictions["prediction"].isna().tolist() == [False, True, False, True]
    assert predictions["refused"].tolist()[1].startswith("place: fourier cannot encode x NULL, y ")
    assert predictions["refused"].tolist()[3].startswith("pixels: image cannot encode 3 bytes: it is of an unknown kind")
    assert model.predict(rows.loc[["b"]])["prediction"].isna().all()
    assert list(model.predict(rows.iloc[:0]).columns) == list(predictions.columns)


def test_missing_values_arrive_as_null(mlflow_model: Served, model: PyFuncModel) -> None:
    rows = mlflow_model.raw.slice(0, 2).to_pandas()
    rows["rooms"] = [np.nan, 3.0]  # as pandas has whole numbers with a NULL among them
    rows["word"] = [None, "never seen"]
    rows["member"] = pd.Series([None, True], dtype=object)
    assert model.predict(rows)["refused"].isna().all()


def test_whole_numbers_stand_for_others(mlflow_model: Served, model: PyFuncModel) -> None:
    rows = mlflow_model.raw.slice(0, 2).to_pandas()
    rows["x"], rows["y"], rows["price"] = [1, 2], [3, 2**60], [10, 20]
    rows["pair"] = [[1, 2], None]
    predictions = model.predict(rows)
    assert predictions["refused"].isna().tolist() == [True, False]
    floats = rows.assign(x=rows["x"].astype(float), y=rows["y"].astype(float), price=rows["price"].astype(float), pair=[[1.0, 2.0], None])
    pd.testing.assert_frame_equal(model.predict(floats), predictions)


@pytest.mark.parametrize("column", ["member", "word", "code", "price", "age"])
@pytest.mark.parametrize("nothing", [np.nan, None, pd.NA])
def test_a_column_without_a_value_is_missing_whatever_its_type(mlflow_model: Served, model: PyFuncModel, column: str, nothing: Any) -> None:
    rows, nulls = mlflow_model.raw.slice(0, 3).to_pandas(), mlflow_model.raw.slice(0, 3)
    place, kind = nulls.schema.get_field_index(column), nulls.schema.field(column).type
    expected = model.unwrap_python_model()._predictor.predict(nulls.set_column(place, column, pa.nulls(3, kind)))
    pd.testing.assert_frame_equal(model.predict(rows.assign(**{column: nothing})), expected)


@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.string(), pa.date32(), pa.timestamp("us"), pa.int64(), pa.list_(pa.float64()), pa.binary()]
)
@pytest.mark.parametrize("empty", [pa.array([np.nan, np.nan]), pd.Series([np.nan, np.nan]), [np.nan, None], [pd.NaT, None]], ids=str)
def test_every_door_takes_a_column_without_a_value(kind: pa.DataType, empty: Any) -> None:
    table, reasons = fitting_rows({"x": empty}, pa.schema({"x": kind}))
    assert table.column("x").to_pylist() == [None, None] and reasons.null_count == 2


@pytest.mark.parametrize(
    ("column", "values"), [("x", ["1", "2"]), ("x", [True, False]), ("member", [1, 0]), ("word", [1, 2]), ("pair", [["1", "2"]] * 2)]
)
def test_other_sorts_of_values_do_not(mlflow_model: Served, model: PyFuncModel, column: str, values: list[Any]) -> None:
    rows = mlflow_model.raw.slice(0, 2).to_pandas().assign(**{column: values})
    with pytest.raises((SourceError, MlflowException), match=rf"column {column}"):
        model.predict(rows)


def test_a_value_that_its_type_does_not_have_refuses_its_row_alone(mlflow_model: Served, model: PyFuncModel) -> None:
    rows = mlflow_model.raw.slice(0, 5).to_pandas()
    rows["children"] = [1.5, 2.0, 2**31, 2.0, 1.0]
    rows["code"] = pd.Series([1, 2, 3, 2**63, 2**80], dtype=object)
    predictions = model.predict(rows)
    assert [str(reason).partition(":")[0] for reason in predictions["refused"]] == [
        "the values of column children cannot be cast to int32",
        "None",
        "the values of column children cannot be cast to int32",
        "the values of column code cannot be cast to int64",
        "the values of column code cannot be cast to int64",
    ]
    alone = model.predict(rows.iloc[[1]].assign(code=[2]))
    assert predictions["probability_true"].iloc[1] == pytest.approx(alone["probability_true"].iloc[0], abs=1e-6)


def test_columns_that_cannot_be_cast_are_named() -> None:
    schema = pa.schema([("n", pa.int32()), ("day", pa.date32())])
    with pytest.raises(SourceError, match="the rows have no column day; the model takes n, day"):
        to_arrow(pd.DataFrame({"n": [1]}), schema)
    with pytest.raises(SourceError, match="the values of column n cannot be cast to int32"):
        to_arrow(pd.DataFrame({"n": [1.5], "day": [pd.Timestamp("2026-01-01")]}), schema)


def test_the_model_is_filed_whole_and_unpickles_nothing(mlflow_model: Served, logged_files: set[str]) -> None:
    folder, files = Path(mlflow.artifacts.download_artifacts(mlflow_model.uri)), logged_files
    assert {"artifacts/config.json", "artifacts/manifest.json", "artifacts/weights.safetensors"} <= files
    assert {file for file in files if file.startswith("code/")} == {"code/pipelines.zip"} and len(files) < 20
    with ZipFile(folder / "code/pipelines.zip") as archive:
        assert {"pipelines/__init__.py", "pipelines/py.typed", "pipelines/serving/model/logged_model.py"} < set(archive.namelist())
    assert not [file for file in files if file.endswith((".pkl", ".pt", ".pth", ".pyc"))]
    pinned = (folder / "requirements.txt").read_text().split()
    assert {f"torch=={torch.__version__.partition('+')[0]}", f"pyarrow=={pa.__version__}", f"mlflow=={mlflow.__version__}"} <= set(pinned)
    logged = mlflow.MlflowClient(mlflow_model.config.tracking.uri).get_logged_model(mlflow_model.uri.removeprefix("models:/"))
    assert (logged.source_run_id, [metric.value for metric in logged.metrics]) == (mlflow_model.run_id, [0.5])
    run = mlflow.get_run(mlflow_model.run_id)
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
    code, requirements = software_requirements(settings, [encoder])
    assert {str(tmp_path / name) for name in ("churn_tasks.py", "churn_models", "churn_encoders.py")} == set(code)
    assert all("==" in requirement and "+" not in requirement for requirement in requirements)


@pytest.mark.full
def test_p7_it_serves_from_any_folder(mlflow_model: Served, model: PyFuncModel, tmp_path: Path) -> None:
    """One server for all requests, since it takes long to start. Its answers are parsed strictly: NaN is no JSON."""
    example = json.loads(Path(mlflow.artifacts.download_artifacts(mlflow_model.uri), "serving_input_example.json").read_text())
    row = dict(zip(example["dataframe_split"]["columns"], example["dataframe_split"]["data"][0], strict=True))
    with model_server(mlflow_model.uri, tmp_path, {"MLFLOW_TRACKING_URI": mlflow_model.config.tracking.uri}) as ask:

        def answers(**changed: Any) -> Any:
            return ask({"dataframe_records": [{**row, **changed}, row]})["predictions"]

        answer = ask(example)
        whole_number = answers(x=1)
        refused = [answers(**changed) for changed in ({"pixels": "AAEC"}, {"children": 2**31}, {"code": 2**63}, {"code": 2**80})]
        unknown, missing = answers(member=None), answers(member=2)
        failed = [
            ask.post(json.dumps({"dataframe_records": rows}).encode(), "application/json")
            for rows in ([{**row, "x": "old"}], [{**row, "word": 5}])
        ]
    assert whole_number[0]["refused"] is None
    (first,) = answer["predictions"]
    expected = model.predict(model.input_example).iloc[0]
    assert first["refused"] is None
    assert first["prediction"] == expected["prediction"]
    assert first["probability_true"] == pytest.approx(expected["probability_true"])
    for reason, other in refused:
        assert reason == {**dict.fromkeys(reason), "refused": reason["refused"]} and reason["refused"]
        assert other["probability_true"] == pytest.approx(first["probability_true"], abs=1e-6)
    frame = pd.DataFrame({name: [value] for name, value in model.input_example.iloc[0].items()}).assign(member=[None])
    assert unknown[0]["probability_true"] == pytest.approx(model.predict(frame)["probability_true"].iloc[0], abs=1e-6)
    assert missing[0]["refused"].startswith("the values of column member cannot be cast to bool")
    for (status, error), column in zip(failed, ("x", "word"), strict=True):
        assert status == 400 and f"the values of column {column} cannot be cast" in error["message"], error
        assert "stack_trace" not in error and "unexpected" not in error["message"]


def test_mlflow_reads_csv_as_the_model_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In MLflow's own application. Integers beyond 2^53 stay exact, beside a NULL too."""
    monkeypatch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "false")  # which the application sets
    csv_model = file_model(tmp_path, left_out=("pair", "pixels"))
    model = mlflow.pyfunc.load_model(csv_model.uri)
    client = TestClient(scoring_server.init(model))

    def answer(text: str) -> tuple[int, Any]:
        response = client.post("/invocations", content=text, headers={"Content-Type": "text/csv"})
        return response.status_code, strictly_parsed(response.content)

    names = "age,children,rooms,x,y,word,code,member,born,price"
    rows = ["40,2,,0.5,0.25,ant,9007199254740993,True,2024-01-05,1.5", "40.5,2,3,,0.25,00501,7,,2024-01-05,1.5"]
    status, content = answer("\n".join([names, *rows]) + "\n")
    assert status == 200, content
    first, second = content["predictions"]
    record = {"age": 40, "children": 2, "rooms": None, "x": 0.5, "y": 0.25, "word": "ant", "code": 2**53 + 1, "member": True}
    alike = client.post("/invocations", json={"dataframe_records": [{**record, "born": "2024-01-05", "price": 1.5}]})
    assert first["probability_true"] == pytest.approx(alike.json()["predictions"][0]["probability_true"], abs=1e-6)
    assert second["refused"].startswith("place: fourier cannot encode x NULL") and second["probability_true"] is None
    for wrong in (rows[0].replace("9007199254740993", str(2**63)), rows[0].replace("0.5", "old")):
        status, content = answer(f"{names}\n{wrong}\n")
        assert status == 400 and "Failed to parse input as a Pandas DataFrame" in content["message"]

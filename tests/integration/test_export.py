"""Exports of a model of many encoders, run by the software they are written for."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import mlflow
import numpy as np
import onnx as onnx_format
import onnxruntime
import pytest
import torch
from exporting import ABSENT, Eigenvalues, Exported, model_of_many_encoders
from filed import CONFIG
from torch import nn

from pipelines.errors import CorruptError, DatasetError, ExportError, TrackingError
from pipelines.serving.export.export_folder import _write_predictions, export
from pipelines.serving.export.onnx import runner, write_onnx
from pipelines.serving.export.parity import compare_outputs
from pipelines.serving.export.predict_program import rows_to_json
from pipelines.serving.export.predict_script import check_script
from pipelines.serving.export.subject import Numeric, Rows, Subject, read_subject, to_tensors
from pipelines.serving.export.targets import Candidate, exporter_fault

FILES = ("README.md", "code.zip", "examples.json", "model.onnx", "parity.json", "predict.py")
ALONE = f"""{ABSENT}
import runpy
folder = sys.argv[1]
sys.argv = [folder + "/predict.py", *sys.argv[2:]]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    files = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "pipelines"]
    assert files and all(file.startswith(folder + "/code.zip/") for file in files), files
"""
"""Runs a folder's script in a process that can import nothing of Lockstep but what the folder has, and few other packages."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return model_of_many_encoders(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def onnx(model: Exported) -> Path:
    return export(model.config, model.run_id, "onnx")


def report(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["model"]: row for row in json.loads((folder / "parity.json").read_text())["rows"]}


def test_the_report_compares_every_test_row(model: Exported, onnx: Path) -> None:
    rows = report(onnx)
    assert rows["onnx"]["rows"] == len(model.raw) and rows["onnx"]["other_rows"] == 1_000 - len(model.raw)
    assert rows["onnx"]["equal_decisions"] == 1
    assert 0 < rows["onnx"]["max_difference"] < 1e-5
    assert rows["onnx"]["auc"] == pytest.approx(rows["mlflow"]["auc"], abs=1e-6)
    assert rows["onnx"]["bytes"] == (onnx / "model.onnx").stat().st_size


def test_an_output_that_is_not_finite_differs_without_bound(model: Exported) -> None:
    subject = read_subject(model.config, model.run_id)

    def first_is_nan(rows: Rows) -> np.ndarray:
        output = subject.output(rows)
        output[0] = np.nan
        return output

    candidates = {"nan": Candidate(first_is_nan, 0), "equal": Candidate(subject.output, 0)}
    compared = {row["model"]: row["max_difference"] for row in compare_outputs(subject, candidates, len(model.raw))}
    assert compared == {"mlflow": 0, "nan": np.inf, "equal": 0}


def test_the_graph_takes_raw_numbers_and_predicts_what_the_model_in_mlflow_predicts(model: Exported, onnx: Path) -> None:
    """Here the rows are those before ETL, with NULL among them, and MLflow's model encodes them by itself."""
    manifest = json.loads((onnx / "manifest.json").read_text())
    raw = {entry["name"] for entry in manifest["inputs"] if entry["dtype"] == "float64"}
    assert raw == {"age", "children", "rooms"}
    encoded = read_subject(model.config, model.run_id).first_rows("test", len(model.raw))
    numbers = {name: model.raw[name].to_pandas().to_numpy(np.float64, na_value=np.nan) for name in raw}
    assert np.isnan(numbers["age"]).any()
    session = onnxruntime.InferenceSession(onnx / "model.onnx")
    assert {entry.shape[0] for entry in session.get_inputs()} == {"rows"}
    inputs = {entry.name: numbers.get(entry.name, encoded[entry.name]) for entry in session.get_inputs()}
    probabilities = 1 / (1 + np.exp(-session.run(None, inputs)[0][:, 0].astype(np.float64)))
    expected = mlflow.pyfunc.load_model(model.uri).predict(model.raw.to_pandas())
    np.testing.assert_allclose(probabilities, expected["probability_true"], atol=1e-6)


def predict_alone(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-c", ALONE, str(folder), *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


def test_its_script_predicts_from_raw_rows_what_the_model_in_mlflow_predicts(model: Exported, onnx: Path) -> None:
    rows = model.raw.drop_columns(["rich", "unused"])
    ended = predict_alone(onnx, stdin="\n".join(map(json.dumps, rows_to_json(rows))))
    assert ended.returncode == 0, ended.stderr
    predictions = [json.loads(line) for line in ended.stdout.splitlines()]
    expected = mlflow.pyfunc.load_model(model.uri).predict(model.raw.to_pandas())
    assert [row["prediction"] for row in predictions] == expected["prediction"].tolist()
    np.testing.assert_allclose([row["probability_true"] for row in predictions], expected["probability_true"], atol=1e-6)


def test_its_script_takes_utf_8_in_every_locale_and_its_reader_may_leave(model: Exported, onnx: Path) -> None:
    rows = rows_to_json(model.raw.drop_columns(["rich", "unused"]))
    assert any(row["word"] == "dög" for row in rows)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    expected = predict_alone(onnx, stdin=text.decode())
    # Python takes UTF-8 in the locale C unless it is told not to.
    command = [sys.executable, "-I", "-X", "utf8=0", "-c", ALONE, str(onnx)]
    ended = subprocess.run(command, input=text, capture_output=True, timeout=120, check=False, env={**os.environ, "LC_ALL": "C"})
    assert (ended.returncode, ended.stdout.decode()) == (0, expected.stdout), ended.stderr
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as output:
        process = subprocess.run(command, input=text, stdout=output, stderr=subprocess.PIPE, timeout=120, check=False)
    assert (process.returncode, process.stderr) == (0, b"")


def test_its_script_refuses_what_the_model_refuses_and_agrees_with_the_examples(onnx: Path) -> None:
    examples = json.loads((onnx / "examples.json").read_text())
    refused = [row["refused"] for row in examples["predictions"] if row["refused"]]
    assert "children: minmax cannot encode NULL" in refused
    assert any(reason.startswith("pixels: image cannot encode 5 bytes") for reason in refused)
    assert sum(row["refused"] is None for row in examples["predictions"]) >= 24
    ended = predict_alone(onnx, "--check")
    assert (ended.returncode, ended.stdout.strip()) == (0, f"{len(examples['rows'])} examples agree"), ended.stderr


def test_its_script_names_a_value_of_another_type_and_a_column_that_is_missing(onnx: Path) -> None:
    (row, *_) = json.loads((onnx / "examples.json").read_text())["rows"]
    for wrong, message in [
        ({**row, "children": 2**40}, "error: row 0: column children takes int32, and this is 1099511627776"),
        ({**row, "word": 3}, "error: row 0: column word takes string, and this is 3"),
        ({name: value for name, value in row.items() if name != "age"}, "error: row 0 has no column age; a row has "),
    ]:
        ended = predict_alone(onnx, stdin=json.dumps(wrong))
        assert ended.returncode == 1 and ended.stderr.startswith(message), ended.stderr


def test_an_export_whose_script_differs_is_refused(onnx: Path, tmp_path: Path) -> None:
    folder = tmp_path / "altered"
    shutil.copytree(onnx, folder)
    examples = json.loads((folder / "examples.json").read_text())
    examples["predictions"][0]["probability_true"] += 0.01
    (folder / "examples.json").write_text(json.dumps(examples))
    with pytest.raises(
        ExportError,
        match=r"does not predict what the model in MLflow predicts: error: example 0: probability_true: .*; use the model in MLflow",
    ):
        check_script(folder, has_own_task=False)


def test_the_folder_is_logged_with_the_run_and_sealed(model: Exported, onnx: Path) -> None:
    manifest = json.loads((onnx / "manifest.json").read_text())
    assert manifest["files"] == {name: sha256((onnx / name).read_bytes()).hexdigest() for name in FILES}
    client = mlflow.MlflowClient(model.config.tracking.uri)
    logged = {file.path for file in client.list_artifacts(model.run_id, "export/onnx")}
    assert logged == {f"export/onnx/{name}" for name in ("manifest.json", *FILES)}
    assert "equal decisions" in client.get_run(model.run_id).data.tags["export.onnx"]
    assert manifest["model"]["uri"] == model.uri
    assert manifest["versions"]["onnxruntime"] == onnxruntime.__version__
    by_encoder = {entry["name"]: entry.get("encoded by", {}).get("encoder", {}).get("encoder") for entry in manifest["inputs"]}
    assert by_encoder["word"] == "vocabulary" and by_encoder["age"] is None


@pytest.mark.full
def test_int8_is_compared_with_floats(model: Exported) -> None:
    folder = export(model.config, model.run_id, "onnx-int8")
    rows = report(folder)
    assert list(rows) == ["mlflow", "onnx-int8", "onnx"]
    assert rows["onnx-int8"]["bytes"] < rows["onnx"]["bytes"]
    assert rows["onnx-int8"]["equal_decisions"] > 0.95
    graph = onnx_format.load(folder / "model.onnx").graph
    tables = {constant.name for constant in graph.initializer if constant.data_type == onnx_format.TensorProto.UINT8}
    lookups = [node for node in graph.node if node.op_type == "Gather"]
    assert lookups and all(node.input[0] in tables for node in lookups), "an embedding makes floats of its whole table"
    assert not any(attribute.name == "axis" for node in lookups for attribute in node.attribute), "0 is the default"


@pytest.mark.full
def test_an_export_that_fails_leaves_the_earlier_one(model: Exported, onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (onnx / "manifest.json").read_bytes()

    def raise_disk_full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("pipelines.serving.export.export_folder.write_manifest", raise_disk_full)
    with pytest.raises(OSError, match="no space"):
        export(model.config, model.run_id, "onnx")
    assert (onnx / "manifest.json").read_bytes() == before
    assert [path.name for path in onnx.parent.iterdir() if not path.name.endswith("int8")] == [onnx.name]


def test_a_run_that_is_not_there_and_another_dataset_are_refused(model: Exported, tmp_path: Path) -> None:
    with pytest.raises(TrackingError, match="the model of run 'nowhere' cannot be read"):
        export(model.config, "nowhere", "onnx")
    client = mlflow.MlflowClient(model.config.tracking.uri)
    empty = client.create_run(client.get_run(model.run_id).info.experiment_id).info.run_id
    with pytest.raises(TrackingError, match="has no model"):
        export(model.config, empty, "onnx")
    other = model_of_many_encoders(tmp_path)
    another = other.config.model_copy(update={"tracking": model.config.tracking})
    Path(tmp_path, "data/000000000000/manifest.json").unlink()
    with pytest.raises(DatasetError, match="holds no dataset version"):
        export(another, model.run_id, "onnx")
    untested = model_of_many_encoders(tmp_path / "untested", splits=("train",))
    with pytest.raises(DatasetError, match=r"has no test rows to compare models on; give dataset\.split a test share"):
        export(untested.config, untested.run_id, "onnx")


def test_an_altered_model_is_refused(tmp_path: Path) -> None:
    model = model_of_many_encoders(tmp_path)
    (weights,) = tmp_path.glob("artifacts/**/weights.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CorruptError, match=r"weights\.safetensors is not the file that was logged"):
        export(model.config, model.run_id, "onnx")


class Sums(Eigenvalues):
    """The network without that operator."""

    def forward(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        return rows["pixels"].float()[:, 0].sum(1)


class Likelihoods(nn.Module):
    """The cross entropy of each row, as the networks of `language` compute it."""

    def __init__(self, weight: Sequence[float] | None) -> None:
        super().__init__()
        self.cross_entropy = nn.CrossEntropyLoss(None if weight is None else torch.tensor(weight), reduction="none")

    def forward(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        pixels = rows["pixels"].float()[:, 0]
        return self.cross_entropy(pixels.flatten(0, 1) / 100, (pixels[..., 0] > 100).long().flatten()).view(-1, 2)


@pytest.mark.parametrize("weight", [None, pytest.param((0.5, 2.0), marks=pytest.mark.full)])
def test_a_cross_entropy_of_each_row_is_written(model: Exported, tmp_path: Path, weight: Sequence[float] | None) -> None:
    subject, network = read_subject(model.config, model.run_id), Likelihoods(weight)
    run = runner(write_onnx(replace(subject, network=network), tmp_path / "model.onnx"))
    encoded = subject.features(subject.first_rows("test", 5))
    expected = network(to_tensors(encoded)).numpy()
    assert expected.std() > 0.1
    assert run(subject.numeric.raw(encoded)) == pytest.approx(expected, abs=1e-5)


def test_one_test_row_is_enough_for_any_number_of_rows(model: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = read_subject(model.config, model.run_id)
    rows = subject.features(subject.numeric.raw(subject.first_rows("test", 5)))
    monkeypatch.setattr(Subject, "first_rows", lambda *_: {name: values[:1] for name, values in rows.items()})
    monkeypatch.setattr(Numeric, "raw", lambda self, given: given)
    assert len(runner(write_onnx(subject, tmp_path / "model.onnx"))(rows)) == 5


@pytest.mark.full
def test_an_operator_that_onnx_lacks_is_named(model: Exported, tmp_path: Path) -> None:
    subject = replace(read_subject(model.config, model.run_id), network=Eigenvalues())
    with pytest.raises(ExportError, match=r"ONNX has no operator for aten\._linalg_eigh of torch; .*docs/how-to/export"):
        write_onnx(subject, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
    write_onnx(replace(subject, network=Sums()), tmp_path / "model.onnx")


OWN_SETTINGS = """
from typing import ClassVar, Literal

from pipelines.config import EncoderSettings


class ClipSettings(EncoderSettings):
    implementation: ClassVar[str] = "own_clip.encoder:Clip"
    encoder: Literal["own_clip.settings:ClipSettings"] = "own_clip.settings:ClipSettings"
    limit: float = 1.0
"""
OWN_ENCODER = """
import numpy as np

from pipelines.data.features.base import Encoder, array_with_nulls
from pipelines.data.features.raw import is_number, numbers
from pipelines.data.versions.schema import TensorColumn


class Clip(Encoder):
    @classmethod
    def refusal(cls, settings, kind):
        return "" if is_number(kind) else "it takes numbers"

    def column(self, name, role):
        return TensorColumn(name=name, dtype="float32", role=role)

    def encode(self, *inputs):
        values = numbers(inputs[0])
        return array_with_nulls(np.clip(values, -self.settings.limit, self.settings.limit).astype(np.float32), np.isnan(values))
"""


def test_an_encoder_of_the_user_s_own_is_exported_and_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "code/own_clip"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "settings": OWN_SETTINGS, "encoder": OWN_ENCODER}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(package.parent)
    features = {**CONFIG["dataset"]["features"], "clipped": {"encoder": "own_clip.settings:ClipSettings", "column": "x", "limit": 0.5}}
    model = model_of_many_encoders(tmp_path, features=features)
    folder = export(model.config, model.run_id, "onnx")
    rows = model.raw.drop_columns(["rich", "unused"])
    ended = predict_alone(folder, stdin="\n".join(map(json.dumps, rows_to_json(rows))))
    assert ended.returncode == 0, ended.stderr
    expected = mlflow.pyfunc.load_model(model.uri).predict(model.raw.to_pandas())
    assert [json.loads(line)["prediction"] for line in ended.stdout.splitlines()] == expected["prediction"].tolist()
    with ZipFile(folder / "code.zip") as code:
        files = [name for name in code.namelist() if name.startswith("own_clip/")]
        assert files == ["own_clip/__init__.py", "own_clip/encoder.py"] and code.read(files[1]).decode() == OWN_ENCODER


def test_an_encoder_that_needs_pydantic_has_no_script_and_may_be_computed_before(
    model: Exported, onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_heavy.py").write_text("import pydantic\n")
    monkeypatch.syspath_prepend(tmp_path)
    description = json.loads((onnx / "manifest.json").read_text())
    description["inputs"][0]["refuses"]["implementation"] = "own_heavy:Clip"
    subject = read_subject(model.config, model.run_id)
    (note,) = _write_predictions(folder := tmp_path / "empty", model.config, subject, description, [])
    assert note.startswith("there is no predict.py: own_heavy imports pydantic, which an exported folder does without; import settings")
    assert not folder.exists()
    encoded = subject.first_rows("test", 5)
    numbers = subject.numeric.raw(subject.features(encoded))
    assert runner(onnx / "model.onnx")(numbers) == pytest.approx(subject.output(encoded), abs=1e-5)


def test_any_other_failure_of_an_exporter_is_one_line() -> None:
    assert (
        exporter_fault("ONNX", RuntimeError("first\nlast"))
        == "ONNX cannot express the network: last; docs/how-to/export.md lists the networks that work"
    )


def test_what_torch_says_of_reports_is_left_out() -> None:
    message = "Failed to decompose.\n- Create an issue.\n\n<class 'RuntimeError'>: size 1 is wrong\n\nUse tlparse to see full graph."
    assert exporter_fault("ONNX", RuntimeError(message)).startswith("ONNX cannot express the network: RuntimeError: size 1 is wrong; docs/")


@pytest.mark.parametrize(("target", "name"), [("stablehlo", "xla"), ("executorch", "executorch")])
def test_a_target_without_its_environment_says_how_to_make_it(
    model: Exported, monkeypatch: pytest.MonkeyPatch, target: str, name: str
) -> None:
    monkeypatch.setenv(f"LOCKSTEP_{name.upper()}", "/nowhere/python")
    with pytest.raises(ExportError, match=f"^--to {target} needs /nowhere/python, a Python with .*; run make {name} in "):
        export(model.config, model.run_id, target)

"""Models of a plain function are served where neither its notebook nor its module is, and not by what may not run their code."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from exporting import Exported, model_of_many_encoders

from pipelines.config import Config, parse
from pipelines.errors import ConfigError
from pipelines.serving.export.subject import read_subject
from pipelines.serving.http.served_model import load_served_model

SOURCE = """from torch import nn

def make_network(columns, width=4):
    return nn.Sequential(columns.inputs(), nn.Linear(columns.width, width), nn.ReLU(), nn.Linear(width, columns.outputs))
"""
FROM_SOURCE = {"kind": "__main__:make_network", "source": SOURCE, "width": 5}


def answer_elsewhere(exported: Exported, folder: Path) -> str:
    """The prediction for the example, in a process that has MLflow only."""
    program = (
        "import sys, mlflow; mlflow.set_tracking_uri(sys.argv[1]); model = mlflow.pyfunc.load_model(sys.argv[2]);"
        "print(model.predict(model.input_example).to_json())"
    )
    command = [sys.executable, "-P", "-c", program, exported.config.tracking.uri, exported.uri]
    ended = subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def from_source(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return model_of_many_encoders(tmp_path_factory.mktemp("source"), task=FROM_SOURCE)


def test_p7_a_model_of_a_notebook_s_function_answers_in_another_process(from_source: Exported, tmp_path: Path) -> None:
    assert "prediction" in answer_elsewhere(from_source, tmp_path)


@pytest.mark.full
def test_p7_a_model_of_a_module_s_function_carries_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served_network.py").write_text(SOURCE)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        exported = model_of_many_encoders(tmp_path / "model", task={"kind": "served_network:make_network"})
    (tmp_path / "served_network.py").unlink()
    sys.modules.pop("served_network", None)
    assert "prediction" in answer_elsewhere(exported, tmp_path)


def change_code(config: Config) -> Config:
    """The config with another function."""
    values = {**config.model_dump(mode="json", by_alias=True, exclude_unset=True), "task": {**FROM_SOURCE, "source": f"{SOURCE}\n"}}
    return parse(values, "test")


def test_the_code_in_a_model_s_settings_runs_only_beside_a_config_that_has_it(from_source: Exported) -> None:
    config = from_source.config
    with pytest.raises(ConfigError, match=r"has another function in task.source than the config, which would run; use the config of the"):
        read_subject(change_code(config), from_source.run_id)
    assert read_subject(config, from_source.run_id).network is not None
    with pytest.raises(ConfigError, match=r"which this server does not run; train with the function in a module, or serve it by mlflow"):
        load_served_model(config.tracking.uri, from_source.uri, "1")


def test_this_server_serves_a_model_of_a_module_s_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served_by_us.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    exported = model_of_many_encoders(tmp_path / "model", task={"kind": "served_by_us:make_network"})
    assert load_served_model(exported.config.tracking.uri, replace(exported).uri, "1").version == "1"

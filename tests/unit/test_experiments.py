"""Names of experiments: what cannot be one is a line of the config, and each is a folder of its own below `mlartifacts`."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.cli import cli

from pipelines.config import Config
from pipelines.config.load import parse
from pipelines.errors import ConfigError, TrackingError
from pipelines.tracking.client import connect, ensure_experiment

VALUES = {
    "name": "x",
    "source": {"tables": {"t": {"format": "text", "path": "nowhere"}}},
    "dataset": {"path": "nowhere", "split": {"train": 1, "validation": 0, "test": 0}, "features": {"a": "standardize"}},
    "task": {"kind": "tabular"},
}


def config(experiment: str, uri: str = "sqlite:///nowhere.db") -> Config:
    target = {"dataset": {**VALUES["dataset"], "target": {"b": "binary"}}}  # type: ignore[dict-item]
    return parse({**VALUES, **target, "tracking": {"uri": uri, "experiment": experiment}}, "x.yaml")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("x" * 450, "has 450 bytes, and an experiment's name at most 200; shorten it"),
        ("ä" * 101, "has 202 bytes, and an experiment's name at most 200; shorten it"),
        ("../other", "has the part '..' between slashes, as a path would; remove it"),
        ("a/../../other", "has the part '..' between slashes"),
        ("a//b", "has the part '' between slashes"),
        ("a/", "has the part '' between slashes"),
        (".", "has the part '.' between slashes"),
        (" a", "begins or ends with a blank, or has a control character; remove it"),
        ("a\tb", "begins or ends with a blank, or has a control character; remove it"),
    ],
)
def test_a_name_that_cannot_be_an_experiment_is_a_fault_of_the_config(name: str, rule: str) -> None:
    with pytest.raises(ConfigError) as error:
        config(name)
    assert f"x.yaml: tracking.experiment: {rule}" in str(error.value)


def test_each_experiment_has_a_folder_of_its_own_below_mlartifacts(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = connect(uri)
    names = ["plain", "a:b", "a#b", "a?b", "a_b", "a/b", "/Shared/someone@x.org/adult", "ä" * 100, "a%2Fb"]
    places = [client.get_experiment(ensure_experiment(client, config(name, uri))).artifact_location for name in names]
    folders = {Path(re.sub("^file://", "", place)) for place in places}
    assert len(folders) == len(names)
    assert {folder.parent for folder in folders} == {tmp_path / "mlartifacts"}
    run = client.create_run(ensure_experiment(client, config("a%2Fb", uri))).info.run_id
    client.log_text(run, "text", "a.txt")
    assert [file.parents[2].parent for file in tmp_path.rglob("a.txt")] == [tmp_path / "mlartifacts"]


def test_a_deleted_experiment_is_named_with_what_restores_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = connect(uri)
    number = ensure_experiment(client, config("adult", uri))
    client.delete_experiment(number)
    with pytest.raises(TrackingError) as error:
        ensure_experiment(client, config("adult", uri))
    message = re.search(r"experiment adult at (\S+) is deleted; restore it with `MLFLOW_TRACKING_URI=(\S+) mlflow (.*?)`", str(error.value))
    assert message is not None and message[1] == message[2] == uri
    monkeypatch.setenv("MLFLOW_TRACKING_URI", message[2])
    assert CliRunner().invoke(cli, message[3].split()).exit_code == 0
    assert ensure_experiment(MlflowClient(uri), config("adult", uri)) == number


def test_an_address_s_remedy_fits_its_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match=r"set tracking.uri to sqlite:/// with a file in a folder that can be written"):
        connect(f"sqlite:///{tmp_path}/file/mlflow.db")

"""`task.use` leaves features of a dataset version out: of the model, of batches, and of what a served model takes. Rows stay the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from trainings import FEATURES, training

from pipelines import api
from pipelines.config import Config, parse
from pipelines.data.versions.folds import open_fold, open_splits
from pipelines.data.versions.manifest import Folds, ServedQuery
from pipelines.data.versions.schema import schema_to_text
from pipelines.data.versions.versions import Version, leave_out_features
from pipelines.diff.table_input import query_columns
from pipelines.errors import ConfigError
from pipelines.launch import cross_validation, training_run
from pipelines.launch.checks import check_training
from pipelines.launch.cross_validation import train_folds
from pipelines.planner import at_hand
from pipelines.serving.model.logged_model import drop_passthrough_columns
from pipelines.serving.model.predictor import Predictor
from pipelines.serving.model.scoring import input_example, model_signature
from pipelines.tasks.bind import build_task

OTHERS = [f"x{number}" for number in range(1, FEATURES)]


def using(folder: Path, **use: bool) -> Config:
    return training(folder, rows=640, task={"use": use})


def test_a_model_does_not_read_what_is_left_out(tmp_path: Path) -> None:
    config = using(tmp_path, x0=False)
    read, all_features = open_fold(config), open_splits(config)
    for version in (read, all_features):
        task = build_task(config.task, version.manifest)
        assert [column.name for column in task.data.features] == OTHERS and task.data.target.name == "label"
    assert {*next(iter(api.open_loader(config)))} >= {*OTHERS, "label"} and "x0" not in next(iter(api.open_loader(config)))
    assert (read.digest, read.rows("train")) == (all_features.digest, all_features.rows("train")), "of the same version"
    served = Predictor(config.task, drop_passthrough_columns(read.manifest), task.model().state_dict())
    assert served.inputs.names == OTHERS
    check_training(config, read)
    check_training(config, all_features)


def add_query(version: Version, **conditions: str) -> Version:
    """The version of a query that computes x0 from the raw column r0, and x1 from r1; other features are raw columns."""
    names = ["r0", "r1", *OTHERS[1:]]
    raw = pa.schema([(name, pa.float64()) for name in names])
    columns = {"x0": 'sqrt("r0")', "x1": 'sqrt("r1")', **{name: f'"{name}"' for name in OTHERS[1:]}}
    query = ServedQuery(table="t", inputs=schema_to_text(raw), columns=columns, conditions=conditions)
    encoders = {
        name: fitted if fitted.inputs else fitted.model_copy(update={"inputs": (name,)})
        for name, fitted in version.manifest.encoders.items()
    }
    return replace(version, manifest=version.manifest.model_copy(update={"served_query": query, "encoders": encoders}))


def test_a_served_query_does_not_take_what_only_a_left_out_feature_reads(tmp_path: Path) -> None:
    config = using(tmp_path, x0=False)
    version = leave_out_features(add_query(open_splits(config)), config.task.left_out)
    weights = build_task(config.task, version.manifest).model().state_dict()
    served = Predictor(config.task, drop_passthrough_columns(version.manifest), weights)
    assert served.inputs.names == ["r1", *OTHERS[1:]] == model_signature(served).inputs.input_names()
    assert input_example(drop_passthrough_columns(version.manifest)).columns.tolist() == served.inputs.names
    rows = pd.DataFrame({name: [1.0, 2.0] for name in served.inputs.names})
    assert served.predict_frame(rows)["refused"].isna().all()
    assert served.predict_frame(rows.assign(r0=[-1.0, 1.0]))["refused"].isna().all(), "nobody computes x0"
    queried, missing = query_columns(pa.Table.from_pandas(rows), version.manifest, "t")
    assert queried.column_names == OTHERS and "x0" in missing, "so that the monitor compares the features that the model has"


def test_a_condition_still_reads_the_column_of_a_left_out_feature(tmp_path: Path) -> None:
    config = using(tmp_path, x0=False)
    version = leave_out_features(add_query(open_splits(config), small='"r0" < 9'), config.task.left_out)
    served = Predictor(config.task, version.manifest, build_task(config.task, version.manifest).model().state_dict())
    assert served.inputs.names == ["r0", "r1", *OTHERS[1:]]
    rows = pd.DataFrame({name: [1.0, 1.0] for name in served.inputs.names}).assign(r0=[-1.0, 10.0])
    assert served.predict_frame(rows)["refused"].tolist() == [None, "small"]


def test_a_feature_that_is_used_is_no_part_of_the_identity(tmp_path: Path) -> None:
    plain, used, without = (using(tmp_path, **use) for use in ({}, {"x0": True}, {"x0": False}))
    assert plain.model_identity == used.model_identity != without.model_identity and plain.data_identity == without.data_identity
    assert "use" not in plain.model_dump(mode="json")["task"], "so that models of before are found"


def test_a_column_left_out_may_be_a_slice(tmp_path: Path) -> None:
    config = using(tmp_path, x0=False)
    data = build_task(config.task, open_fold(config).manifest).data
    assert "x0" in [column.name for column in data.carried]


@pytest.mark.parametrize(
    ("use", "fault", "remedy"),
    [
        ({"xx": False}, r"task\.use: xx is no feature of the dataset, which has x0, .*; remove it from task\.use|did you mean", {}),
        ({"label": False}, r"task\.use: label is no feature of the dataset", {}),
        (dict.fromkeys(["x0", *OTHERS], False), "so that the model has no input; use a feature", dict.fromkeys(OTHERS, False)),
    ],
)
def test_what_no_model_could_leave_out_is_refused(use: dict[str, Any], fault: str, remedy: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=fault):
        using(tmp_path, **use)
    using(tmp_path, **remedy)


def test_columns_of_a_pattern_are_known_with_the_version(tmp_path: Path) -> None:
    config = using(tmp_path, x0=False)
    version = open_splits(config)
    unknown = config.model_copy(update={"task": config.task.model_copy(update={"use": {"z9": False}})})
    with pytest.raises(ConfigError, match=r"task\.use has z9, which is no column of .*; remove it from task\.use"):
        check_training(unknown, version)
    all_of_them = config.model_copy(update={"task": config.task.model_copy(update={"use": dict.fromkeys(["x0", *OTHERS], False)})})
    with pytest.raises(ConfigError, match=r"task\.use leaves out each feature of .*; use one of x0, x1"):
        check_training(all_of_them, version)
    check_training(config, version)


def test_every_door_to_a_training_opens_the_version_without_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = plan_layout(using(tmp_path, x0=False))
    read: list[Version] = []

    def note(_: Config, version: Version) -> None:
        read.append(version)
        raise StopIteration

    monkeypatch.setattr(at_hand, "choose_layout", note)
    for version in (None, open_splits(config)):
        with pytest.raises(StopIteration):
            api.train(config, version)
    monkeypatch.setattr(training_run, "check_training", note)
    with pytest.raises(StopIteration):
        training_run.train(config, open_splits(config))
    assert [[column.name for column in version.columns if column.role == "feature"] for version in read] == [OTHERS] * 3


def plan_layout(config: Config) -> Config:
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    values["train"]["parallel"] = "auto"
    return parse(values, "toy")


def test_a_cross_validation_checks_and_plans_without_what_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = using(tmp_path, x0=False)
    features: list[list[str]] = []

    def note(config: Config, version: Version) -> None:
        assert version.manifest.folds is not None and config.train.fold == version.manifest.folds.selected == 2
        features.append([column.name for column in version.columns if column.role == "feature"])
        raise StopIteration

    version, folds = open_splits(config), Folds(rows={"fold": (3, 1)})
    version = replace(version, manifest=version.manifest.model_copy(update={"folds": folds}))

    def select(version: Version, fold: int) -> Version:
        selected = folds.model_copy(update={"selected": fold})
        return replace(version, manifest=version.manifest.model_copy(update={"folds": selected}))

    monkeypatch.setattr("pipelines.data.versions.folds.select_fold", select)
    for module, name, door in (
        (at_hand, "choose_layout", at_hand.choose_layout_of_folds),
        (cross_validation, "check_training", train_folds),
    ):
        monkeypatch.setattr(module, "open_version", lambda *_: version)
        monkeypatch.setattr(module, "smallest_training", lambda _: 2)
        monkeypatch.setattr(module, name, note)
        with pytest.raises(StopIteration):
            door(config)
    assert features == [OTHERS] * 2

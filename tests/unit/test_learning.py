"""A task gets to know of its dataset what the manifest says: columns, classes, and how to decode the target."""

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from fitting import fit, gather_statistics

from pipelines.config import TaskSettings
from pipelines.config.dataset.dataset import Dataset
from pipelines.config.tasks.task import TabularSettings as Settings
from pipelines.data.features import fit_encoders
from pipelines.data.versions.manifest import Manifest
from pipelines.errors import ConfigError
from pipelines.tasks.bind import build_task, task_data
from pipelines.tasks.tabular import Tabular

RAW = pa.table({"x": [0.0, 1.0, 2.0], "kind": ["b", "a", "b"], "rich": [True, False, True], "price": [100.0, 300.0, 500.0]})


def make_manifest(target: dict[str, Any]) -> Manifest:
    return Manifest(name="test", version="", digest="", attempt="", encoders=fit({"x": "standardize"}, target, RAW), splits={})


@pytest.mark.parametrize(
    ("target", "classes", "counts", "encoded", "decoded"),
    [
        ({"kind": "label"}, ("a", "b"), (1, 2), [1, 0], ["b", "a"]),
        ({"rich": "binary"}, ("false", "true"), (1, 2), [1, 0], [True, False]),
        ({"price": "minmax"}, (), (), [0.0, 0.5], [100.0, 300.0]),
    ],
)
def test_a_task_knows_its_target(target: dict[str, Any], classes: tuple, counts: tuple, encoded: list, decoded: list) -> None:
    task = build_task(Settings(), make_manifest(target))
    assert isinstance(task, Tabular)
    assert (task.data.classes, task.data.class_counts) == (classes, counts)
    assert [column.name for column in task.data.features] == ["x"]
    assert task.data.target.name == next(iter(target))
    assert task.data.decode(np.array(encoded)).tolist() == decoded


class Nowhere(TaskSettings):
    implementation: ClassVar[str] = "nowhere.tasks:Churn"


def test_a_task_that_cannot_be_imported_is_named() -> None:
    message = (
        r"task.kind is 'mine:Nowhere', whose 'nowhere.tasks:Churn' cannot be imported: No module named 'nowhere'; install it, or start in"
    )
    with pytest.raises(ConfigError, match=message):
        build_task(Nowhere(kind="mine:Nowhere"), make_manifest({"rich": "binary"}))


class NoTask(TaskSettings):
    implementation: ClassVar[str] = "pathlib:Path"


def test_a_task_is_one() -> None:
    with pytest.raises(
        ConfigError, match=r"whose 'pathlib:Path' is not a task; it must name a class derived from pipelines.tasks.base.Task$"
    ):
        build_task(NoTask(kind="mine:NoTask"), make_manifest({"rich": "binary"}))


def test_a_packed_column_has_tokens_and_no_target() -> None:
    dataset = Dataset.model_validate({"path": "data", "features": {"kind": {"encoder": "characters", "length": 4}}})
    encoders = fit_encoders(dataset, gather_statistics(dataset, RAW), RAW.schema)
    manifest = Manifest(name="test", version="", digest="", attempt="", encoders=encoders, splits={})
    assert task_data(encoders).tokens == (b"", b"?", b"a", b"b")
    with pytest.raises(ConfigError, match=r"this task predicts a target, but dataset\.target is empty; add one, or use a task without"):
        build_task(Settings(), manifest)

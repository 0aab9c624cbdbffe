"""What a training would refuse is said as soon as it is known: before ETL reads, at its end, or before a worker starts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainings import open_dataset, training

from pipelines import api
from pipelines.config import load, parse
from pipelines.errors import ConfigError, TrainingError
from pipelines.launch.checks import check_training, refusal
from pipelines.launch.training_run import _describe_start
from pipelines.tasks.bind import check_task

ROOT = Path(__file__).parents[2]
ARRAY = {"encoder": "identity", "shape": [3]}
WORDS = {"encoder": "sequence", "length": 2}


def values(
    task: dict[str, Any], features: dict[str, Any] | None = None, target: Any = "label", train: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "name": "toy",
        "source": {"tables": {"points": {"format": "parquet", "path": "points"}}},
        "dataset": {"path": "data", "features": features or {"x": "standardize"}, "target": {"y": target}},
        "task": task,
        "train": train or {},
    }


@pytest.mark.parametrize(
    ("config_values", "message"),
    [
        (
            values({"kind": "tabular"}, target={**ARRAY, "shape": [3, 2]}),
            r"the target y has shape \(3, 2\) per row, but this task predicts one value",
        ),
        (values({"kind": "text", "widths": [3]}, {"x": WORDS}), r"task.widths is \[3\], but x has only 2 words"),
        (values({"kind": "text"}), "task.kind is text, which takes one column of words"),
        (values({"kind": "vision"}), "task.kind is vision, which takes one image column"),
        (values({"kind": "language"}), "task.kind is language, which takes one feature encoded by"),
        (values({"kind": "forecasting"}), "task.kind is forecasting, which takes one feature of shape"),
        (values({"kind": "recommendation", "user": ["x"], "item": ["z"]}, target="identity"), "together they must name each feature once"),
        (values({"kind": "next_item"}, {"x": WORDS}, target=WORDS), "task.kind is next_item, whose sequences keep first"),
        (
            values({"kind": "tabular", "class_weights": "balanced"}, target="standardize"),
            "class_weights is balanced, but the target y has no",
        ),
        (values({"kind": "tabular", "slices": ["x"]}), "task.slices has x, which is a number"),
        (values({"kind": "tabular"}, {"row_key": "standardize"}), "a column of dataset is called row_key, a name that batches need"),
        (
            values({"kind": "tabular"}, train={"global_batch": 80, "strategy": {"kind": "federated", "client_column": "xx"}}),
            "train.strategy.client_column is xx, which is no tensor column of dataset; did you mean x",
        ),
        (values({"kind": "tabular"}, train={"monitor": "aucc"}), "train.monitor is aucc, but the validation metrics are"),
    ],
)
def test_a_task_that_does_not_fit_the_columns_is_refused_before_a_row_is_read(
    config_values: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse(config_values, "x")
    monkeypatch.setattr("pipelines.etl.run.run", lambda *arguments: pytest.fail("ETL has begun"))
    with pytest.raises(ConfigError, match=message):
        api.prepare(config)


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_pipeline_fits_its_task(path: Path) -> None:
    check_task(load(path))


@pytest.mark.parametrize(
    "config_values",
    [
        values({"kind": "tabular", "class_weights": [1.0, 2.0]}),  # how many classes there are is in the rows
        values({"kind": "tabular", "slices": ["x"]}, {"x": "vocabulary"}),
        values({"kind": "tabular"}, train={"monitor": "accuracy"}),
    ],
)
def test_what_only_rows_decide_is_not_refused_before_they_are_read(config_values: dict[str, Any]) -> None:
    check_task(parse(config_values, "x"))


def test_too_few_rows_are_said_when_etl_has_counted_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = training(tmp_path, rows=17, global_batch=512)
    manifest = open_dataset(config).manifest
    monkeypatch.setattr("pipelines.etl.run.run", lambda *arguments: manifest)
    assert api.prepare(config) == manifest, "the version is there"
    assert "a training with this config would be refused: split train of " in caplog.text
    assert "17 rows do not fill one global batch of 512; lower train.global_batch, or set train.remainder to keep" in caplog.text
    assert refusal(training(tmp_path, global_batch=512, remainder="keep")) == ""
    nowhere = config.dataset.model_copy(update={"path": str(tmp_path / "nowhere")})
    assert refusal(config.model_copy(update={"dataset": nowhere})) == "", "there is no version"


SINGLE = {"rows": 72, "task": {"batch_norm": True}, "remainder": "keep"}
"""8 rows are left for the last step of 64: one for each of 8 shards."""


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({"strategy": "exact"}, True),
        ({"strategy": "exact", "remainder": "drop"}, False),
        ({"strategy": "exact", "task": {}}, False),
        ({"strategy": "exact", "global_batch": 8}, True),
        ({"strategy": "exact", "grad_accum_steps": 4}, True),
        ({"strategy": "exact", "global_batch": 24}, False),
        ({"strategy": "parameter_server"}, True),
        ({"strategy": {"kind": "local_sgd", "replicas": 4, "inner_steps": 2}}, False),
        ({"strategy": {"kind": "local_sgd", "replicas": 8, "inner_steps": 2}}, True),
        ({"strategy": "ddp", "workers": 2}, False),
        ({"strategy": "ddp", "workers": [2, 8]}, True),
        ({"strategy": "ddp", "workers": 8, "sync_batch_norm": True}, False),
        ({"strategy": "ddp", "workers": 8, "sync_batch_norm": True, "grad_accum_steps": 4}, False),  # whose last passes have no rows
        ({"strategy": "ddp", "workers": 1, "sync_batch_norm": True, "grad_accum_steps": 8}, True),
        ({"strategy": "ddp", "workers": 2, "sync_batch_norm": True, "rows": 65}, True),
        ({"strategy": "sharded", "workers": 2, "sync_batch_norm": True, "rows": 67, "grad_accum_steps": 2}, True),
        ({"strategy": "ddp", "workers": 2, "sync_batch_norm": True, "rows": 66, "grad_accum_steps": 2}, False),
        ({"strategy": "ddp", "workers": 2, "grad_accum_steps": 4}, True),
    ],
    ids=str,
)
def test_a_batch_norm_of_a_single_row_is_refused_before_training(tmp_path: Path, settings: dict[str, Any], is_refused: bool) -> None:
    config = training(tmp_path, **{**SINGLE, **settings})
    if not is_refused:
        check_training(config, open_dataset(config))
        return
    with pytest.raises(ConfigError, match=r"of which a pass would have a single row, and the model has a batch norm"):
        check_training(config, open_dataset(config))


@pytest.mark.parametrize(("shuffle", "adjective"), [(True, "different"), (False, "the same")])
def test_the_first_line_of_a_training_says_which_rows_are_left_out(tmp_path: Path, shuffle: bool, adjective: str) -> None:
    config = training(tmp_path, rows=72, shuffle=shuffle)
    run: Any = SimpleNamespace(run_id="1a2b", is_resumed=False)
    assert f"(8 rows left out of each, {adjective} ones every time)" in _describe_start(config, open_dataset(config), run, gpus=False)


def test_a_setting_that_no_step_of_the_run_uses_is_refused(tmp_path: Path) -> None:
    few = {"rows": 128, "epochs": 2}  # four steps
    for settings, message in (
        ({"strategy": "local_sgd"}, "train.strategy.inner_steps is 16, but the run has only 4 steps"),
        (
            {"strategy": {"kind": "ddp", "compression": {"kind": "powersgd", "start_step": 4}}},
            "train.strategy.compression.start_step is 4, but the run has only 4 steps",
        ),
    ):
        config = training(tmp_path, **{**few, **settings})
        with pytest.raises(ConfigError, match=message):
            check_training(config, open_dataset(config))
    check_training(config := training(tmp_path, **few, strategy={"kind": "local_sgd", "inner_steps": 4}), open_dataset(config))
    check_training(
        config := training(tmp_path, **few, strategy={"kind": "ddp", "compression": {"kind": "powersgd", "start_step": 3}}),
        open_dataset(config),
    )


def test_a_change_after_the_last_step_is_refused(tmp_path: Path) -> None:
    changes = [{"after_epoch": 1, "lr": 0.1}, {"after_epoch": 3, "lr": 0.2}]
    settings: dict[str, Any] = {"rows": 640, "epochs": 5, "max_steps": 30, "changes": changes}  # of ten steps an epoch
    with pytest.raises(ConfigError, match=r"after epoch 3, which is step 30, and train\.max_steps is 30; raise it to more than that step"):
        check_training(config := training(tmp_path, **settings), open_dataset(config))
    for remedy in ({"max_steps": 31}, {"max_steps": None}, {"changes": changes[:1]}):
        check_training(config := training(tmp_path, **{**settings, **remedy}), open_dataset(config))


def test_too_few_rows_end_a_training_before_it_starts(tmp_path: Path) -> None:
    config = training(tmp_path, rows=17, global_batch=512)
    with pytest.raises(TrainingError, match="17 rows do not fill one global batch of 512"):
        check_training(config, open_dataset(config))

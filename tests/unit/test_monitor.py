"""Which epoch is the best: by which metric, which way, and of equal ones."""

from math import nan
from pathlib import Path
from typing import Any

import pytest
from trainings import open_dataset, training

from pipelines.errors import ConfigError
from pipelines.launch.checks import check_training
from pipelines.tasks.base import Task
from pipelines.tasks.bind import build_task
from pipelines.train.loop import breaks_tie, improves
from pipelines.train.run_context import State


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monitor")
    training(folder)
    return folder


def task(home: Path) -> Task:
    config = training(home)
    return build_task(config.task, open_dataset(config).manifest)


@pytest.mark.parametrize(
    ("name", "monitor"), [("", ("auc", "max")), ("auc", ("auc", "max")), ("accuracy", ("accuracy", "max")), ("loss", ("loss", "min"))]
)
def test_a_metric_says_which_way_is_better(home: Path, name: str, monitor: tuple[str, str]) -> None:
    assert task(home).choose_monitor(name) == monitor


def test_loss_is_what_training_minimises(home: Path) -> None:
    task_of_classes = task(home)
    task_of_classes.minimised = "accuracy"
    assert task_of_classes.choose_monitor("loss") == ("accuracy", "max")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"monitor": "acuracy"},
            "train.monitor is acuracy, but the validation metrics are accuracy, auc, average_precision, loss; did you mean accuracy?",
        ),
        (
            {"monitor": "zzz"},
            "train.monitor is zzz, but the validation metrics are accuracy, auc, average_precision, loss; auc is the default",
        ),
    ],
)
def test_another_name_is_refused_before_anything_starts(home: Path, settings: dict[str, Any], message: str) -> None:
    config = training(home, **settings)
    with pytest.raises(ConfigError, match=message):
        check_training(config, open_dataset(config))


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([(0.8, 0.5), (0.9, 0.6), (0.7, 0.4)], 2),
        ([(0.9, 0.5), (0.9, 0.4), (0.9, 0.6)], 2),
        ([(0.9, 0.5), (0.9, 0.5)], 1),
        ([(0.9, None), (0.9, None)], 1),
        ([(nan, 0.5), (nan, 0.4), (0.1, 0.6), (nan, 0.1)], 3),
        ([(nan, 0.5), (nan, 0.4)], 2),
        ([(0.9, nan), (0.9, 0.7)], 2),
        ([(None, None), (None, None)], 2),
    ],
)
def test_of_equal_epochs_the_lower_loss_is_the_best_then_the_earlier(values: list[tuple[Any, Any]], best: int) -> None:
    state = State()
    for epoch, (value, loss) in enumerate(values, 1):
        if improves(value, state.best, "max") or breaks_tie(value, loss, state):
            state.best, state.best_loss, state.best_epoch = value, loss, epoch
    assert state.best_epoch == best


@pytest.mark.parametrize("settings", [{"monitor": "loss"}, {"early_stopping": 1}])
def test_without_rows_to_validate_there_is_nothing_to_monitor(tmp_path: Path, settings: dict[str, Any]) -> None:
    config = training(tmp_path, rows=3, global_batch=8, remainder="keep", **settings)  # a quarter of 3 is none
    with pytest.raises(ConfigError, match=r"train\.\w+ is \w+, but the split validation of .* has no rows; unset it, or add the split"):
        check_training(config, open_dataset(config))


def test_it_decides_the_model(home: Path) -> None:
    assert training(home, monitor="loss").model_identity != training(home).model_identity

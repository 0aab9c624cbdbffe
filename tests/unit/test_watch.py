"""What the driver of a training does beside it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer

from pipelines.train import watch
from pipelines.train.folder import Folder
from pipelines.train.trainer import _NOT_NEEDED, _Trainer


def trainer() -> Any:
    return TorchTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=2))


def test_only_the_two_actors_that_we_know_are_left_out() -> None:
    """They have no documented names, and another Ray may call them otherwise."""
    trainers: list[Any] = [TorchTrainer(lambda: None), _Trainer(lambda: None)]
    kinds = [{type(callback).__name__ for callback in one._create_default_callbacks()} for one in trainers]
    assert kinds[0] - kinds[1] == set(_NOT_NEEDED)


def test_a_driver_frees_what_the_one_before_it_had_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    monkeypatch.setattr(watch, "release", released.append)
    folder, first, second = Folder(str(tmp_path)), trainer(), trainer()
    watch._machines(first, folder)
    assert released == []
    watch._machines(second, folder)
    watch._machines(SimpleNamespace(train_run_context=SimpleNamespace(run_id="third")), folder)
    assert released == [f"train-{one.train_run_context.run_id}" for one in (first, second)]
    assert released[0] != released[1]

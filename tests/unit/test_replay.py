"""The replay check says when a verification is over."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainings import training

from pipelines.errors import ConfigError
from pipelines.launch.training_progress import TrainingProgress
from pipelines.launch.verify import place_config, replay_config
from pipelines.launch.worker import ReplayCheck
from pipelines.train.checkpoint.checkpoint_record import DigestLog
from pipelines.train.step_statistics import Flags


def test_it_stops_once_there_is_no_more_to_find_out() -> None:
    stop_flags: list[bool] = []

    def step(batch: Any, number: int, rate: float, flags: Flags, compute_grad_norm: bool) -> Any:
        stop_flags.append(flags.stop)
        return SimpleNamespace(loss_sum=0.5)

    strategy: Any = SimpleNamespace(model=None, mesh=None, clock=None, gpu_steps_per_reading=1, step=step)
    check = ReplayCheck(strategy, DigestLog(losses={1: 0.5, 2: 0.5}), steps=2)
    for number in range(3):
        check.step([], number, 0.1, Flags())
    assert stop_flags == [False, False, True]
    assert (check.comparison.losses, check.comparison.loss) == (2, None)


def test_more_workers_than_the_run_has_replicas_are_refused_before_they_start(tmp_path: Path) -> None:
    recorded_config = training(tmp_path, rows=200, strategy={"kind": "local_sgd", "replicas": 2})
    present_config = training(tmp_path, rows=200, strategy={"kind": "local_sgd", "replicas": 4}, workers=4)
    with pytest.raises(ConfigError, match=r"run 1f.*: train: workers is 4; it must be at most 2, strategy.replicas"):
        place_config(recorded_config, present_config, "1f", TrainingProgress())


def test_a_run_is_repeated_whatever_spreads_the_model_of_the_present_config(tmp_path: Path) -> None:
    recorded_config = training(tmp_path, rows=200, strategy="exact")
    present_config = training(tmp_path, rows=200, strategy={"kind": "sharded", "replicate": 2}, workers=4)
    placed_config = place_config(recorded_config, present_config, "1f", TrainingProgress())
    assert (placed_config.train.strategy.kind, placed_config.train.workers) == ("exact", 4)


def test_a_run_with_servers_is_repeated_by_exact_and_nothing_is_said_to_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = training(tmp_path, rows=200, strategy={"kind": "parameter_server", "servers": 2}, workers=2)
    placed_config = place_config(replay_config(run), run, "1f", TrainingProgress())
    assert placed_config.train.strategy.kind == "exact"
    assert capsys.readouterr().out == ""

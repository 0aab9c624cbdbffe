"""What the driver of a training does beside it."""

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from ray.exceptions import RayActorError
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.scaling_policy import create_scaling_policy
from ray.train.v2._internal.execution.scaling_policy.autoscaling_coordinator_client import TrainAutoscalingCoordinatorClient
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError
from waiting import wait_until

from pipelines.errors import TrainingError
from pipelines.launch import training_watch
from pipelines.launch.ray_trainer import _NOT_NEEDED, Trainer
from pipelines.launch.training_progress import TrainingProgress
from pipelines.train.checkpoint.run_directory import ATTEMPT, PROGRESS, STOP, RunDirectory


def trainer() -> Any:
    return TorchTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=2))


def test_only_the_two_actors_that_we_know_are_left_out() -> None:
    """They have no documented names, and another Ray may call them otherwise."""
    trainers: list[Any] = [TorchTrainer(lambda: None), Trainer(lambda: None)]
    kinds = [{type(callback).__name__ for callback in trainer._create_default_callbacks()} for trainer in trainers]
    assert kinds[0] - kinds[1] == set(_NOT_NEEDED)


@pytest.mark.parametrize("address", ["", "there:6379"])
@pytest.mark.parametrize("workers", [2, (1, 2)])
def test_nobody_is_asked_for_machines_where_none_can_come(
    address: str, workers: int | tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[str] = []
    monkeypatch.setattr("pipelines.launch.ray_trainer.is_own", lambda: False)  # other tests of this process may have one
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr(TrainAutoscalingCoordinatorClient, "send_resource_request", lambda *_: requests.append("for machines"))
    monkeypatch.setattr(TrainAutoscalingCoordinatorClient, "cancel_resource_request", lambda *_: requests.append("for none"))
    monkeypatch.setattr(DataParallelTrainer, "_initialize_and_run_controller", lambda _, **parts: parts["scaling_policy"])
    scaling: Any = ScalingConfig(num_workers=workers)  # type: ignore[arg-type]  # typed as Train v1 has it
    trainer: Any = Trainer(lambda: None, scaling_config=scaling)
    policy = cloudpickle.loads(
        cloudpickle.dumps(trainer._initialize_and_run_controller(scaling_policy=create_scaling_policy(trainer.scaling_config)))
    )
    policy.after_controller_start(SimpleNamespace(run_id="run"))
    if workers == 2:
        assert policy.make_decision_for_non_running_worker_group().num_workers == 2
    policy.before_controller_abort()
    assert bool(requests) == (address != "" or workers != 2)


def test_a_driver_frees_what_the_one_before_it_had_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    monkeypatch.setattr(training_watch, "release", released.append)
    folder, first, second = RunDirectory(str(tmp_path)), trainer(), trainer()
    training_watch._watch_machines(first, folder)
    assert released == []
    training_watch._watch_machines(second, folder)
    training_watch._watch_machines(SimpleNamespace(train_run_context=SimpleNamespace(run_id="third")), folder)
    assert released == [f"train-{trainer.train_run_context.run_id}" for trainer in (first, second)]
    assert released[0] != released[1]


def watch_fit(fit: Callable[[], dict[str, Any]], folder: Path) -> dict[str, Any]:
    trainer: Any = SimpleNamespace(
        fit=lambda: SimpleNamespace(return_value=fit()), scaling_config=SimpleNamespace(elasticity_enabled=False), stop=lambda: None
    )
    return training_watch.watch(trainer, RunDirectory(str(folder)), TrainingProgress(), lambda: None)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (RayActorError(), TrainingError, "lost the training's controller: The actor .*; run the same command to resume"),
        (
            ControllerError(RuntimeError("no actor\nand a trace")),
            TrainingError,
            "^Ray could not start the workers: no actor; run the same command to resume from the last checkpoint$",
        ),
        (ValueError("of Ray itself"), ValueError, "of Ray itself"),
        (SystemExit(3), SystemExit, "3"),
    ],
    ids=["controller died", "no start", "defect", "exit"],
)
def test_whatever_ends_the_training_ends_the_driver(error: BaseException, kind: type[BaseException], message: str, tmp_path: Path) -> None:
    def fit() -> dict[str, Any]:
        raise error

    with pytest.raises(kind, match=message):
        watch_fit(fit, tmp_path)


def test_a_store_that_fails_does_not_end_the_driver(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / PROGRESS).mkdir()

    def fit() -> dict[str, Any]:
        wait_until(lambda: PROGRESS in caplog.text, f"a warning that names {PROGRESS}")
        return {"steps": 7}

    assert watch_fit(fit, tmp_path) == {"steps": 7}
    assert PROGRESS in caplog.text


FAILURE = {"failure": {"kind": "NonFiniteError", "message": "step 7: the loss is nan"}}


def save_nothing_in_time() -> dict[str, Any]:
    time.sleep(0.5)
    return {"steps": 9}


def die() -> dict[str, Any]:
    raise RayActorError


@pytest.mark.parametrize(
    ("number", "end", "line"),
    [
        (signal.SIGTERM, lambda: {"steps": 7}, "stopped and saved after step 7; run the same command to resume"),
        (
            signal.SIGTERM,
            save_nothing_in_time,
            "the workers have not saved within 0 s, and what came after the last checkpoint is lost; run the",
        ),
        (signal.SIGINT, save_nothing_in_time, "stopped and saved after step 9; run the same command to resume"),
        (signal.SIGTERM, lambda: FAILURE, "and what came after the last checkpoint is lost: step 7: the loss is nan"),
        (signal.SIGINT, die, "and what came after the last checkpoint is lost: Ray lost the training's controller"),
        (signal.SIGTERM, dict, "interrupt again to stop at once"),
    ],
    ids=["saved", "too late", "awaited", "not a number", "controller died", "verification"],
)
def test_whatever_a_stop_saves_is_said(
    number: int,
    end: Callable[[], dict[str, Any]],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(training_watch, "LEAVE_SECONDS", 0.1)
    folder = RunDirectory(str(tmp_path))
    folder.put(ATTEMPT, b"")

    def fit() -> dict[str, Any]:
        signal.raise_signal(number)  # Python handles it in the main thread
        wait_until(lambda: folder.has(STOP), "the driver to ask for a stop")
        return end()

    with pytest.raises(SystemExit) as exit_info:
        watch_fit(fit, tmp_path)
    assert exit_info.value.code == 128 + number
    assert line in capsys.readouterr().out.splitlines()[-1]

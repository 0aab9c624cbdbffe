"""When results of steps are read from a GPU, where short steps wait for each other; here the results lie on the CPU all the while."""

from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from test_loop import Curve, Recorder, fit
from torch import Tensor
from trainings import training

from pipelines.train import loop, run_context
from pipelines.train.run_context import Trained
from pipelines.train.step_statistics import PendingSteps
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

EPOCH = 2_000 // 64
SHORT, LONG = float("inf"), -1.0
"""Limits beyond which no step is slow, and beyond which every one is."""


class AsOnGpu(PendingSteps):
    def __init__(self, device: torch.device, gpu_steps_per_reading: int) -> None:
        super().__init__(torch.device("cuda"), gpu_steps_per_reading)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    training(folder)
    return folder


def fit_as_on_gpu(
    context: WorkerContext, home: Path, folder: Path, limits: tuple[float, ...], stop_after: int | None, **train: Any
) -> tuple[Trained, dict[str, Tensor], list[int], Curve]:
    """Train with the workers' limits of slow steps. Returns also the steps that were saved, and the curve."""
    hooks = Recorder(stop_after)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loop, "PendingSteps", AsOnGpu)
        patched.setattr(run_context, "SLOW_STEP_SECONDS", limits[context.rank])
        fitted, strategy = fit(context, training(home, **train), str(folder), hooks)
    return fitted, {name: values.clone() for name, values in strategy.model.state_dict().items()}, hooks.saves, hooks.curve


@pytest.mark.parametrize(("limit", "stopped"), [(SHORT, 16), (LONG, 6)], ids=["short", "long"])
def test_a_stop_waits_for_short_steps_only(home: Path, tmp_path: Path, limit: float, stopped: int) -> None:
    fitted, _, saves, _ = fit_as_on_gpu(WorkerContext(), home, tmp_path, (limit,), 5)
    assert (fitted.finished, fitted.steps, saves) == (False, stopped, [stopped])


def test_slow_steps_of_one_worker_are_read_by_all(home: Path, tmp_path: Path) -> None:
    answers = run_group(2, tmp_path / "group", fit_as_on_gpu, home, tmp_path / "run", (SHORT, LONG), 5)
    assert [(fitted.finished, fitted.steps) for fitted, *_ in answers] == [(False, 6)] * 2


def test_saves_come_after_as_many_steps_as_the_config_says(home: Path, tmp_path: Path) -> None:
    """Neither they nor the length of steps move points of the curve, or change weights."""
    answers = [
        fit_as_on_gpu(WorkerContext(), home, tmp_path / f"{limit}", (limit,), None, epochs=2, checkpoint={"every_steps": 10})
        for limit in (SHORT, LONG)
    ]
    (short, weights, saves, curve), (long, long_weights, long_saves, long_curve) = answers
    assert saves == long_saves
    assert saves[:4] == [10, 20, 30, EPOCH] and saves[4:7] == [EPOCH + 10, EPOCH + 20, EPOCH + 30]
    assert curve == long_curve
    assert {step for step, metrics in curve.items() if "train/loss" in metrics} == {16, 32, 48, 2 * EPOCH}
    assert short.metrics == long.metrics
    assert all(torch.equal(values, long_weights[name]) for name, values in weights.items())

"""Learning rates: pure functions of the step, and torch's own values where torch has the schedule."""

import math
from typing import Any

import pytest
import torch
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR

from pipelines.config.train.train import Train
from pipelines.train.learning_rate import learning_rate
from pipelines.train.optimizers import create_optimizer

TOTAL, EPOCH = 40, 10


def rates(**settings: Any) -> list[float]:
    train = Train.model_validate({"lr": 0.2, **settings})
    return [learning_rate(train, step, TOTAL, EPOCH) for step in range(TOTAL)]


def torch_rates(make: Any) -> list[float]:
    of_torch = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    scheduler, actual = make(of_torch), []
    for _ in range(TOTAL):
        actual.append(scheduler.get_last_lr()[0])
        of_torch.step()
        scheduler.step()
    return actual


def test_constant() -> None:
    assert rates() == [0.2] * TOTAL


def test_cosine_is_torch_s() -> None:
    assert rates(schedule="cosine") == pytest.approx(torch_rates(lambda of: CosineAnnealingLR(of, TOTAL)))


def test_one_cycle_is_torch_s() -> None:
    expected = torch_rates(lambda of: OneCycleLR(of, 0.2, total_steps=TOTAL + 1, pct_start=0.3, cycle_momentum=False))
    train = Train.model_validate({"lr": 0.2, "schedule": "one_cycle"})
    assert [learning_rate(train, step, TOTAL + 1, EPOCH) for step in range(TOTAL)] == pytest.approx(expected)


def test_step_is_torch_s_by_the_epoch() -> None:
    assert rates(schedule="step", step_epochs=2, lr_gamma=0.5) == pytest.approx(torch_rates(lambda of: StepLR(of, 2 * EPOCH, 0.5)))


@pytest.mark.parametrize("schedule", ["constant", "cosine", "step"])
def test_warm_up_rises_to_the_peak(schedule: str) -> None:
    actual = rates(schedule=schedule, warmup=0.25)
    assert actual[:10] == pytest.approx([0.2 * (step + 1) / 10 for step in range(10)])
    assert actual[10] == pytest.approx(0.2)
    assert max(actual) <= 0.2 + 1e-12


@pytest.mark.parametrize("schedule", ["constant", "cosine", "one_cycle", "step"])
@pytest.mark.parametrize("total", [1, 2, 3])
def test_the_shortest_runs_have_a_rate(schedule: str, total: int) -> None:
    train = Train.model_validate({"lr": 0.2, "schedule": schedule})
    for step in range(total):
        rate = learning_rate(train, step, total, 1)
        assert math.isfinite(rate)
        assert 0 < rate <= 0.2


def test_optimizers_are_the_ones_named() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(3))]
    kinds = {name: type(create_optimizer(Train.model_validate({"optimizer": name}), parameters)) for name in ("sgd", "adam", "adamw")}
    assert kinds == {"sgd": SGD, "adam": Adam, "adamw": AdamW}
    sgd = create_optimizer(Train.model_validate({"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.1, "lr": 0.3}), parameters)
    assert {name: sgd.defaults[name] for name in ("lr", "momentum", "weight_decay")} == {"lr": 0.3, "momentum": 0.5, "weight_decay": 0.1}

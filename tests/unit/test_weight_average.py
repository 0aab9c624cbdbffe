"""`train.ema_decay`: averages of the weights over steps, which are validated, tested and kept."""

from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor, nn
from trainings import StopsAfter, open_dataset, training

from pipelines.config import Config
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.evaluate import Evaluation
from pipelines.train.loop import Loop
from pipelines.train.optimizers import WeightAverage
from pipelines.train.run_context import Trained
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SETTINGS: dict[str, Any] = {"rows": 640, "epochs": 2, "ema_decay": 0.9, "task": {"dropout": 0.2}, "checkpoint": {"every_steps": 7}}


def open_strategy(config: Config, context: WorkerContext = WorkerContext()) -> Strategy:  # noqa: B008, it is frozen
    return create_strategy(config.train, build_task(config.task, open_dataset(config).manifest), context)


def fit(context: WorkerContext, home: Path, folder: Path, changes: dict[str, Any], stop_after: int | None = None) -> tuple[Trained, str]:
    config = training(home, **{**SETTINGS, **changes})
    version, strategy = open_dataset(config), open_strategy(config, context)
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, 2)
    trained = Loop(config, version, build_task(config.task, version.manifest), strategy, checkpoints, StopsAfter(stop_after)).run()
    return trained, model_digest(strategy.weights())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("averages")
    training(folder, **SETTINGS)
    return folder


def test_averages_are_those_of_the_formula() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    average, expected = WeightAverage(model, 0.5), model.weight.detach().double().clone()
    for step in range(1, 30):
        with torch.no_grad():
            model.weight.copy_(torch.randn(2, 3, generator=torch.Generator().manual_seed(step)))
        average.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach().double()
    present, bias = model.weight.detach().clone(), model.bias.clone()
    with pytest.raises(KeyError), average.in_place():  # an error restores them too
        assert torch.allclose(model.weight.double(), expected, atol=1e-6)
        assert not torch.allclose(model.weight, present, atol=1e-3)
        raise KeyError
    assert torch.equal(model.weight, present)
    assert torch.equal(model.bias, bias)


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_averages_are_evaluated_and_kept_and_training_goes_on_without_them(home: Path, strategy: str) -> None:
    with_averages, plain = (
        open_strategy(training(home, **{**SETTINGS, "strategy": strategy, "ema_decay": decay, "task": {}})) for decay in (0.9, 0)
    )
    config = training(home, **{**SETTINGS, "strategy": strategy, "task": {}})
    version = open_dataset(config)
    losses = []
    for trainer in (with_averages, plain):
        loader = trainer.open_loader(config, version, build_task(config.task, version.manifest))
        for number, batch in enumerate(trainer.batches(loader)):
            trainer.step(batch, number, 0.01, Flags())
        loader.close()
        evaluation = Evaluation(config.train, version, "validation", build_task(config.task, version.manifest), trainer)
        metrics = evaluation()
        evaluation.close()
        assert metrics is not None
        losses.append(metrics["validation/loss"])
    trained = [dict(trainer.model.named_parameters()) for trainer in (with_averages, plain)]
    assert all(torch.equal(values, trained[1][name]) for name, values in trained[0].items()), "training does not read the averages"
    weights = with_averages.weights()
    assert losses[0] != losses[1]
    assert not any(torch.equal(values, weights[name]) for name, values in trained[0].items())
    assert losses[0] == validation_loss(weights, config)


def validation_loss(weights: dict[str, Tensor], config: Config) -> Any:
    """The validation loss of a strategy without averages that has these weights."""
    plain = training(Path(config.dataset.path).parent, **{**SETTINGS, "ema_decay": 0, "task": {}})
    strategy, version = open_strategy(plain), open_dataset(config)
    strategy.model.load_state_dict(weights)
    evaluation = Evaluation(config.train, version, "validation", build_task(config.task, version.manifest), strategy)
    metrics = evaluation()
    evaluation.close()
    assert metrics is not None
    return metrics["validation/loss"]


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.full)])
def test_p5_exact_has_the_same_averages_for_every_number_of_workers(home: Path, tmp_path: Path, workers: int) -> None:
    alone = fit(WorkerContext(), home, tmp_path / "alone", {"strategy": "exact"})
    answers = run_group(workers, tmp_path / "group", fit, home, tmp_path / "run", {"strategy": "exact"})
    assert not isinstance(answers[0], Exception), answers[0]
    assert answers[0][1] == alone[1], "rank 0 has the weights"
    assert all(answer[0].metrics == alone[0].metrics for answer in answers)


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_p4_a_resumed_run_has_the_averages_of_the_uninterrupted_one(home: Path, tmp_path: Path, strategy: str) -> None:
    expected = fit(WorkerContext(), home, tmp_path / "whole", {"strategy": strategy})
    stopped, _ = fit(WorkerContext(), home, tmp_path / "parts", {"strategy": strategy}, stop_after=12)
    assert not stopped.finished
    trained, digest = fit(WorkerContext(), home, tmp_path / "parts", {"strategy": strategy})
    assert digest == expected[1]
    assert trained.metrics == expected[0].metrics


def test_the_decay_is_in_the_identity_and_its_absence_is_not(home: Path) -> None:
    with_average, without, absent = (
        training(home, **{name: value for name, value in {**SETTINGS, "ema_decay": decay}.items() if value is not None})
        for decay in (0.9, 0, None)
    )
    assert without.model_identity == absent.model_identity != with_average.model_identity

"""`train.lora`: low-rank changes of layers, merged in the logged model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor, nn
from torch.nn import functional
from trainings import StopsAfter, open_dataset, training

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.fine_tuning import LowRankChange, add_adapters, model_without_adapters
from pipelines.train.initial_model import check_fine_tuning
from pipelines.train.loop import Loop
from pipelines.train.run_context import Trained
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

# `layers` are Linear, ReLU, twice, and the head: (32, 8), (32, 32), (1, 32).
SETTINGS: dict[str, Any] = {
    "task": {"dropout": 0.0},
    "rows": 640,
    "epochs": 2,
    "freeze": ["layers.0.bias"],
    "lora": {"rank": 2, "alpha": 8, "targets": ["layers.[02]"]},
    "checkpoint": {"every_steps": 7},
}
ADAPTED = ("layers.0.weight", "layers.2.weight")


def fit(
    context: WorkerContext, home: Path, folder: Path, changes: dict[str, Any], stop_after: int | None = None
) -> tuple[Trained, dict[str, Tensor], dict[str, Tensor], list[str]]:
    """The result of a training, the logged weights, the model's, and the parameters of which the optimizer has a state."""
    config = training(home, **{**SETTINGS, **changes})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    trained = Loop(config, version, task, strategy, Checkpoints(RunDirectory(str(folder)), context, 2), StopsAfter(stop_after)).run()
    weights = {name: values.clone() for name, values in strategy.model.state_dict().items()}
    return trained, strategy.weights(), weights, sorted(strategy.state_dict().get("optimizer", {"state": ()})["state"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    training(folder, **SETTINGS)
    return folder


def initial(home: Path) -> dict[str, Tensor]:
    config = training(home, **SETTINGS)
    torch.manual_seed(config.train.seed)
    return dict(build_task(config.task, open_dataset(config).manifest).model().state_dict())


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_the_logged_model_is_an_ordinary_one_with_low_rank_changes(home: Path, tmp_path: Path, strategy: str) -> None:
    start = initial(home)
    _, logged, weights, states = fit(WorkerContext(), home, tmp_path, {"strategy": strategy})
    assert logged.keys() == start.keys()
    for name in ADAPTED:
        place = name.replace("weight", "parametrizations.weight")
        assert torch.equal(weights[f"{place}.original"], start[name]), "the weight itself is frozen"
        change = logged[name] - start[name]
        assert torch.equal(logged[name], start[name] + 4 * (weights[f"{place}.0.up"] @ weights[f"{place}.0.down"]))
        assert change.abs().max() > 1e-3 and torch.linalg.matrix_rank(change, atol=1e-4) == 2
    assert torch.equal(logged["layers.0.bias"], start["layers.0.bias"]), "frozen"
    assert not torch.equal(logged["layers.4.weight"], start["layers.4.weight"]), "trained as without lora"
    assert not any(name.endswith("original") for name in states) and sum("down" in name for name in states) == 2


def test_the_logged_model_predicts_to_the_bit_what_was_evaluated(home: Path, tmp_path: Path) -> None:
    config = training(home, **SETTINGS)
    task = build_task(config.task, open_dataset(config).manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    checkpoints = Checkpoints(RunDirectory(str(tmp_path)), WorkerContext(), 2)
    Loop(config, open_dataset(config), task, strategy, checkpoints, StopsAfter(None)).run()
    ordinary = task.model().eval()
    ordinary.load_state_dict(strategy.weights())
    rows = {column.name: torch.randn(20, generator=torch.Generator().manual_seed(3)) for column in task.data.features}
    with torch.no_grad():
        assert torch.equal(strategy.predict(rows), ordinary(rows))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
def test_p5_exact_is_equal_for_every_number_of_workers(home: Path, tmp_path: Path, workers: int) -> None:
    changes = {"strategy": "exact", "clip_norm": 1.0, "task": {"dropout": 0.2}}
    trained, logged, *_ = fit(WorkerContext(), home, tmp_path / "alone", changes)
    for answer in run_group(workers, tmp_path / "group", fit, home, tmp_path / "run", changes):
        assert not isinstance(answer, Exception), answer
        assert answer[0].metrics == trained.metrics
        if answer[1]:
            assert model_digest(answer[1]) == model_digest(logged)


@pytest.mark.slow
def test_p5_ddp_is_the_same_on_two_workers_but_for_rounding(home: Path, tmp_path: Path) -> None:
    _, alone, *_ = fit(WorkerContext(), home, tmp_path / "alone", {})
    first, second = run_group(2, tmp_path / "group", fit, home, tmp_path / "run", {})
    assert second[1] == {}
    for name, values in alone.items():
        torch.testing.assert_close(first[1][name], values, atol=1e-3, rtol=1e-3)


CLIENTS = {"kind": "federated", "client_column": "label", "per_round": 2, "local_epochs": 1, "rounds_per_epoch": 8}


@pytest.mark.parametrize("strategy", ["ddp", "exact", {"kind": "local_sgd", "inner_steps": 3}, CLIENTS])
def test_p4_a_resumed_run_is_the_uninterrupted_one(home: Path, tmp_path: Path, strategy: Any) -> None:
    changes = {"strategy": strategy, "lr_factors": {"layers.2.*": 2.0}}
    expected, logged, *_ = fit(WorkerContext(), home, tmp_path / "whole", changes)
    stopped, *_ = fit(WorkerContext(), home, tmp_path / "resumed", changes, stop_after=8)
    assert not stopped.finished
    resumed, logged_again, *_ = fit(WorkerContext(), home, tmp_path / "resumed", changes)
    assert model_digest(logged_again) == model_digest(logged) and resumed.metrics == expected.metrics
    start = initial(home)
    assert all(not torch.equal(logged[name], start[name]) for name in ADAPTED)


def test_a_step_is_that_of_two_small_layers_beside_the_frozen_one() -> None:
    torch.manual_seed(2)
    layer = nn.Linear(6, 5)
    model, weight, bias = nn.Sequential(layer), layer.weight.detach().clone(), layer.bias.detach().clone()
    add_adapters(settings(targets=["0"], rank=3, alpha=6), model)
    change: Any = layer.parametrizations["weight"][0]  # type: ignore[index]
    assert isinstance(change, LowRankChange)
    rows = torch.randn(7, 6)
    assert torch.equal(model(rows), functional.linear(rows, weight, bias)), "it begins as the layer was"
    nn.init.normal_(change.up)
    torch.testing.assert_close(model(rows), rows @ weight.T + bias + 2 * rows @ change.down.T @ change.up.T)
    model(rows).square().sum().backward()
    assert layer.parametrizations["weight"].original.grad is None  # type: ignore[index]
    assert change.down.grad is not None and change.up.grad is not None


def test_a_parametrization_of_the_model_s_own_stays() -> None:
    model = nn.Sequential(torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4))
    names = set(model.state_dict())
    add_adapters(settings(targets=["1"], rank=1), model)
    assert set(model_without_adapters(model)) == names


def test_the_identity_has_it_and_earlier_ones_stay(home: Path) -> None:
    plain = training(home).model_identity
    assert training(home, lora=None).model_identity == plain
    variants = [{"targets": ["a"]}, {"targets": ["b"]}, {"targets": ["a"], "rank": 4}, {"targets": ["a"], "alpha": 4}]
    assert len({plain, *(training(home, lora=values).model_identity for values in variants)}) == 5


def settings(**lora: Any) -> Train:
    return Train.model_validate({"lora": lora})


def line(do: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        do()
    assert "\n" not in str(refused.value)
    return str(refused.value)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight


@pytest.mark.parametrize(
    ("model", "lora", "message", "remedy"),
    [
        (
            nn.Sequential(nn.Linear(9, 9), nn.ReLU()),
            {"targets": ["0.weight"]},
            "train.lora: 0.weight matches no linear layer of the model, which has 0; write a name, or a pattern of names",
            {"targets": ["0"]},
        ),
        (
            nn.Sequential(nn.Linear(8, 9), nn.Linear(30, 30)),
            {"targets": ["*"]},
            "train.lora.rank is 8, and 0 has a weight of (9, 8), which has no higher rank; lower it, or remove the layer from "
            "train.lora.targets",
            {"targets": ["1"]},
        ),
        (
            Tied(),
            {"targets": ["first"], "rank": 1},
            "train.lora: first shares its weight with another layer, which would not change; remove it from targets",
            None,
        ),
    ],
)
def test_what_cannot_be_adapted_is_one_line(model: nn.Module, lora: Any, message: str, remedy: Any) -> None:
    assert line(lambda: check_fine_tuning(settings(**lora), model)) == message
    if remedy:
        check_fine_tuning(settings(**remedy), model)


@pytest.mark.parametrize("strategy", ["sharded", "parameter_server"])
def test_strategies_that_cannot_say_so_before_anything_starts(strategy: str) -> None:
    with pytest.raises(ConfigError, match=f"lora is given, which strategy {strategy} does not support; set strategy to ddp or exact"):
        Train(strategy=strategy, lora={"targets": ["a"]})
    Train(strategy="exact", lora={"targets": ["a"]})

"""`train.freeze` and `train.lr_factors`: what is trained, and at which rate, under every strategy."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor, nn
from trainings import StopsAfter, open_dataset, training

from pipelines.config import Config
from pipelines.config.tasks.task import TabularSettings
from pipelines.config.train.strategy import STRATEGIES
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.bind import build_task
from pipelines.tasks.tabular import Tabular
from pipelines.train.buffers import convert_sync_batch_norm
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.fine_tuning import freeze
from pipelines.train.initial_model import check_fine_tuning, check_single_rows, has_batch_norm
from pipelines.train.loop import Loop
from pipelines.train.optimizers import parameter_groups
from pipelines.train.run_context import Trained
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import Strategy, create_strategy, strategy_class
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

# `layers` are Linear, BatchNorm1d, ReLU, twice, and the head.
SETTINGS: dict[str, Any] = {
    "task": {"batch_norm": True, "dropout": 0.2},
    "rows": 640,
    "epochs": 2,
    "freeze": ["layers.0.*", "layers.1.*"],
    "lr_factors": {"layers.4.bias": 2.0, "layers.4.*": 0.1},
    "checkpoint": {"every_steps": 7},
}


def fit(
    context: WorkerContext, home: Path, folder: Path, changes: dict[str, Any], stop_after: int | None = None
) -> tuple[Trained, dict[str, Tensor], list[str]]:
    """The result of a training, its weights, and the parameters of which the optimizer has a state."""
    config = training(home, **{**SETTINGS, **changes})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, 2)
    trained = Loop(config, version, task, strategy, checkpoints, StopsAfter(stop_after)).run()
    weights = {name: values.clone() for name, values in strategy.model.state_dict().items()}
    return trained, weights, sorted(strategy.state_dict().get("optimizer", {"state": ()})["state"])


def initial(config: Config) -> dict[str, Tensor]:
    torch.manual_seed(config.train.seed)
    return dict(build_task(config.task, open_dataset(config).manifest).model().state_dict())


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fine")
    training(folder, **SETTINGS)
    return folder


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_frozen_parameters_and_their_statistics_stay_and_others_do_not(home: Path, tmp_path: Path, strategy: str) -> None:
    start = initial(training(home, **SETTINGS))
    _, weights, states = fit(WorkerContext(), home, tmp_path, {"strategy": strategy})
    same = {name for name, values in weights.items() if torch.equal(values, start[name])}
    assert same == {name for name in start if name.startswith(("layers.0.", "layers.1."))}
    assert states == sorted(name for name in start if name not in same and not name.endswith(("running_mean", "running_var", "tracked")))


@pytest.mark.parametrize("workers", [2, 3])
def test_p5_exact_is_equal_for_every_number_of_workers(home: Path, tmp_path: Path, workers: int) -> None:
    changes = {"strategy": "exact", "clip_norm": 1.0}
    trained, weights, _ = fit(WorkerContext(), home, tmp_path / "alone", changes)
    for answer in run_group(workers, tmp_path / "group", fit, home, tmp_path / "run", changes):
        assert not isinstance(answer, Exception), answer
        assert model_digest(answer[1]) == model_digest(weights)
        assert answer[0].metrics == trained.metrics


def test_p5_ddp_is_the_same_on_two_workers_but_for_rounding(home: Path, tmp_path: Path) -> None:
    changes = {"task": {"batch_norm": False}, "freeze": ["layers.0.*"], "lr_factors": {}}
    _, alone, _ = fit(WorkerContext(), home, tmp_path / "alone", changes)
    for answer in run_group(2, tmp_path / "group", fit, home, tmp_path / "run", changes):
        assert not isinstance(answer, Exception), answer
        for name, values in alone.items():
            torch.testing.assert_close(answer[1][name], values, atol=1e-3, rtol=1e-3)


def count_gradients(context: WorkerContext) -> tuple[int, int]:
    """The number of tensors that workers send each other in a step, under ddp and under exact."""
    changes = {"shards": 2, "freeze": ["layers.[02].*"]}
    ddp, exact = (create_strategy(settings(strategy=kind, **changes), task(), context) for kind in ("ddp", "exact"))
    ddp.step(rows(), 0, 0.1, Flags())
    exact.step([rows()], 0, 0.1, Flags())
    return ddp._replicated._get_ddp_logging_data()["num_parameter_tensors"], len(exact._gradients._parameters)  # type: ignore[attr-defined]


def test_gradients_of_frozen_parameters_are_not_exchanged(tmp_path: Path) -> None:
    assert run_group(2, tmp_path, count_gradients) == [(2, 2), (2, 2)]


CLIENTS = {"kind": "federated", "client_column": "label", "per_round": 2, "local_epochs": 1, "rounds_per_epoch": 8}


@pytest.mark.parametrize("strategy", ["ddp", "exact", {"kind": "local_sgd", "inner_steps": 3}, CLIENTS])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_p4_a_resumed_run_is_the_uninterrupted_one(home: Path, tmp_path: Path, strategy: Any, optimizer: str) -> None:
    changes = {"strategy": strategy, "optimizer": optimizer}
    expected, expected_weights, _ = fit(WorkerContext(), home, tmp_path / "whole", changes)
    stopped, _, _ = fit(WorkerContext(), home, tmp_path / "resumed", changes, stop_after=8)
    assert not stopped.finished
    start = initial(training(home, **{**SETTINGS, **changes}))
    assert all(torch.equal(values, expected_weights[name]) == name.startswith(("layers.0", "layers.1")) for name, values in start.items())
    fitted, weights, _ = fit(WorkerContext(), home, tmp_path / "resumed", changes)
    assert model_digest(weights) == model_digest(expected_weights)
    assert fitted.metrics == expected.metrics


COLUMNS = (
    TensorColumn(name="x", dtype="float32", shape=(6,)),
    TensorColumn(name="label", dtype="int64", role="target", cardinality=3),
)
ROWS = 24


def task() -> Tabular:
    return Tabular(TabularSettings(hidden=(16, 8)), Data(COLUMNS, ("a", "b", "c")))


def settings(**changes: Any) -> Train:
    values = {"global_batch": ROWS, "optimizer": "sgd", "momentum": 0, "weight_decay": 0, "lr": 1, "shards": 1, **changes}
    return Train.model_validate(values)


def rows() -> Batch:
    generator = torch.Generator().manual_seed(5)
    return {"x": torch.randn(ROWS, 6, generator=generator), "label": torch.arange(ROWS) % 3}


def changes_of_one_step(**changes: Any) -> dict[str, Tensor]:
    strategy = create_strategy(settings(**changes), task(), WorkerContext())
    before = deepcopy(strategy.model.state_dict())
    batch: Any = rows() if strategy.__class__.__name__ == "DataParallel" else [rows()]
    strategy.step(batch, 0, 0.5, Flags())
    return {name: values - before[name] for name, values in strategy.model.state_dict().items()}


@pytest.mark.parametrize("strategy", ["ddp", "exact"])
def test_a_factor_multiplies_the_rate_and_the_first_pattern_counts(strategy: str) -> None:
    plain = changes_of_one_step(strategy=strategy)
    varied = changes_of_one_step(strategy=strategy, lr_factors={"layers.2.bias": 4.0, "layers.2.*": 0.25, "layers.0.*": 2.0})
    factors = {"layers.0.weight": 2.0, "layers.0.bias": 2.0, "layers.2.weight": 0.25, "layers.2.bias": 4.0}
    assert any(values.any() for values in plain.values())
    for name, values in plain.items():
        torch.testing.assert_close(varied[name], factors.get(name, 1.0) * values, msg=name)


def test_factors_are_in_the_identity_with_their_order_and_absence_is_not(home: Path) -> None:
    plain = training(home).model_identity
    assert training(home, freeze=[], lr_factors={}).model_identity == plain
    variants = [{"freeze": ["layers.0.*"]}, {"lr_factors": {"a": 1.0, "b": 2.0}}, {"lr_factors": {"b": 2.0, "a": 1.0}}]
    assert len({plain, *(training(home, **changes).model_identity for changes in variants)}) == 4


def line(do: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        do()
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        (
            {"freeze": ["layer.0.*"]},
            "train.freeze: layer.0.* matches no parameter of the model, which has layers.0.weight, layers.0.bias, layers.2.weight, "
            "layers.2.bias, layers.4.weight, layers.4.bias; write a name, or a pattern of names",
            {"freeze": ["layers.0.*"]},
        ),
        ({"freeze": ["*"]}, "train.freeze is *, which leaves none of 6 parameters to train; remove a pattern", {"freeze": []}),
        (
            {"lr_factors": {"head": 2.0}},
            "train.lr_factors: head matches no parameter of the model, which has layers.0.weight, layers.0.bias, layers.2.weight, "
            "layers.2.bias, layers.4.weight, layers.4.bias; write a name, or a pattern of names",
            {"lr_factors": {"layers.4.*": 2.0}},
        ),
        (
            {"freeze": ["layers.0.*"], "lr_factors": {"layers.0.bias": 2.0}},
            "train.lr_factors: layers.0.bias matches frozen parameters only, which have no rate; remove it",
            {"lr_factors": {}},
        ),
        (
            {"lr_factors": {"layers.*": 0.1, "layers.4.*": 1.0}},
            "train.lr_factors: every parameter that layers.4.* matches has the factor of a pattern before it; move it to the front",
            {"lr_factors": {"layers.4.*": 1.0, "layers.*": 0.1}},
        ),
    ],
    ids=["no such name", "nothing left", "no such rate", "frozen", "hidden"],
)
def test_a_pattern_without_effect_is_one_line(changes: dict[str, Any], message: str, remedy: dict[str, Any]) -> None:
    assert line(lambda: check_fine_tuning(settings(**changes), task().model())) == message
    check_fine_tuning(settings(**{**changes, **remedy}), task().model())


UNSUPPORTED = {"parameter_server": ("lr_factors",), "sharded": ("freeze", "lr_factors")}
GIVEN: dict[str, Any] = {"freeze": ["layers.0.*"], "lr_factors": {"layers.2.*": 0.5}}
OPTIONS: dict[str, Any] = {"federated": {"client_column": "x", "per_round": 1}, "local_sgd": {"replicas": 1}}


@pytest.mark.parametrize("kind", [kind for kind, settings in STRATEGIES.by_name.items() if not settings.tasks])  # `test_effects` has those
def test_a_strategy_trains_so_or_refuses_in_one_line(kind: str) -> None:
    strategy = {"kind": kind, **OPTIONS.get(kind, {})}
    refused = UNSUPPORTED.get(kind, ())
    for name in refused:
        message = f"{name} is given, which strategy {kind} does not support; set strategy to ddp or exact, or remove {name}"
        assert message in line(lambda name=name: Train(strategy=strategy, **{name: GIVEN[name]}))  # type: ignore[misc]
        Train.model_validate({name: GIVEN[name], "strategy": "exact"})
    supported = {name: value for name, value in GIVEN.items() if name not in refused}
    if supported:
        assert names_in_training(create_strategy(settings(strategy=strategy, **supported), task(), WorkerContext())) == [
            name for name, _ in task().model().named_parameters() if not name.startswith("layers.0.")
        ]


def names_in_training(strategy: Strategy) -> list[str]:
    return [name for name, parameter in strategy.model.named_parameters() if parameter.requires_grad]


def test_servers_divide_only_what_is_trained() -> None:
    servers = {"kind": "parameter_server", "servers": 3}
    all_layers, last_layer = settings(strategy=servers), settings(strategy=servers, freeze=["layers.[02].*"])
    strategy_class(all_layers).check(all_layers, task(), None)  # type: ignore[arg-type]
    assert "can only be divided among 2" in line(lambda: strategy_class(last_layer).check(last_layer, task(), None))  # type: ignore[arg-type]


class Normalised(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 1))


def test_a_frozen_batch_norm_normalises_by_its_statistics() -> None:
    model = Normalised()
    freeze(settings(freeze=["0.*", "1.*", "3.*", "2.weight"][:2]), model)
    model.train()
    assert (model[1].training, model[3].training) == (False, True)
    inputs, before = torch.randn(8, 3), deepcopy(model.state_dict())
    model(inputs)
    torch.testing.assert_close(model[1](model[0](inputs)), model[0](inputs), atol=1e-4, rtol=1e-4)  # mean 0 and variance 1 from the start
    changed = {name for name, values in model.state_dict().items() if not torch.equal(values, before[name])}
    assert changed == {"3.running_mean", "3.running_var", "3.num_batches_tracked"}
    assert type(convert_sync_batch_norm(deepcopy(model))[1]).__name__ == "FrozenBatchNorm1d"
    assert isinstance(deepcopy(model)[1], nn.BatchNorm1d)


def test_a_batch_norm_without_parameters_is_frozen_by_its_name() -> None:
    model = Normalised()
    freeze(settings(freeze=["[0-3].*"]), model)
    model.train()
    assert not model[1].training and not model[3].training


def test_without_settings_all_parameters_are_one_group() -> None:
    model = task().model()
    check_fine_tuning(settings(), model)
    assert parameter_groups(settings(), model) == list(model.parameters())


def test_a_batch_norm_that_is_frozen_takes_a_single_row(tmp_path: Path) -> None:
    def prepare(**changes: Any) -> tuple[Config, Any]:
        config = training(tmp_path, task={"batch_norm": True}, rows=640, global_batch=8, strategy="exact", **changes)
        return config, build_task(config.task, open_dataset(config).manifest)

    frozen, task = prepare(freeze=["layers.1.*", "layers.4.*"])
    check_single_rows(frozen.train, task, 640)
    assert not has_batch_norm(frozen.train, task)
    half_frozen, task = prepare(freeze=["layers.1.*"])
    assert has_batch_norm(half_frozen.train, task)
    with pytest.raises(ConfigError, match=r"of which a pass would have a single row"):
        check_single_rows(half_frozen.train, task, 640)

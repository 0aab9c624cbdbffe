"""Strategy `federated`: rounds of clients, each on its own rows, on whatever workers."""

import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from groups import run_group
from rows import training_on
from torch import Tensor, nn
from trainings import StopsAfter, open_dataset

from pipelines.config import Config
from pipelines.data.loader import Loader, shard_range
from pipelines.errors import ConfigError, NonFiniteError
from pipelines.launch.checks import check_training
from pipelines.runtime.weights import model_digest
from pipelines.serving.model.logged_model import drop_passthrough_columns
from pipelines.serving.model.predictor import feature_encoders, input_schema
from pipelines.strategies.federated.federated import Federated
from pipelines.strategies.federated.rounds import Round, Rounds, Turn, assign_places, draw_clients, epsilon, noise, places
from pipelines.strategies.federated.settings import Settings as Clients
from pipelines.tasks.base import Task
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Trained, left_out_rows, total_steps, train_order
from pipelines.train.step_statistics import Flags, StepStatistics, check_step
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import Mesh, WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

FEATURES = 6
CLIENTS = 12
SETTINGS: dict[str, Any] = {
    "strategy": "federated",
    "shards": 4,
    "global_batch": 40,
    "optimizer": "sgd",
    "lr": 0.1,
    "weight_decay": 0.0,
    "epochs": 3,
    "seed": 5,
    "checkpoint": {"every_steps": 3},
}
CHOSEN: dict[str, Any] = {"client_column": "writer", "per_round": 5, "local_epochs": 2, "rounds_per_epoch": 2}
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {"task": {"dropout": 0.2, "batch_norm": True}},
    "fedprox, nesterov": {"strategy": {"kind": "federated", **CHOSEN, "proximal": 0.1, "outer": "nesterov", "weighting": "equal"}},
    "private": {"strategy": {"kind": "federated", **CHOSEN, "clip": 0.5, "noise": 0.3, "weighting": "equal"}},
}


def raw(rows: int, seed: int) -> pa.Table:
    """Numbers, and whether a sum of them is positive; a client has more rows than the next one."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((FEATURES, rows)).astype("float32")
    writer = np.minimum(generator.geometric(0.15, rows), CLIENTS) - 1
    columns = {f"x{number}": x[number] for number in range(FEATURES)}
    return pa.table({**columns, "writer": [f"writer {number}" for number in writer], "label": x[0] + x[1] * x[2] > 0})


def training(folder: Path, *, task: dict[str, Any] | None = None, **train: Any) -> Config:
    features = {f"x{number}": "standardize" for number in range(FEATURES)}
    settings = {"kind": "tabular", "hidden": [16], **(task or {})}
    splits = {"train": raw(600, 0), "validation": raw(200, 1), "test": raw(200, 2)}
    values = {**SETTINGS, "strategy": {"kind": "federated", **CHOSEN}, **train}
    return training_on(splits, folder, features, {"label": "binary"}, settings, carried={"writer": "label"}, **values)


def fit_run(
    context: WorkerContext, home: Path, folder: Path, changes: dict[str, Any], stop_after: int | None = None
) -> tuple[Trained, str]:
    """The result of a training, and the digest of its model."""
    config = training(home, **changes)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, 2)
    trained = Loop(config, version, task, strategy, checkpoints, StopsAfter(stop_after)).run()
    return trained, model_digest(strategy.model.state_dict())


def fit_in_turn(context: WorkerContext, home: Path, folder: Path) -> dict[str, Any]:
    return {case: fit_run(context, home, folder / case, changes) for case, changes in CASES.items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("federated")
    training(folder)
    return folder


@pytest.fixture(scope="module")
def alone(home: Path) -> dict[str, Any]:
    return fit_in_turn(WorkerContext(), home, home / "alone")


def assert_same(actual: Any, expected: Any) -> None:
    assert isinstance(actual, tuple), actual
    assert actual[1] == expected[1]
    assert (actual[0].metrics, actual[0].rows, actual[0].best_epoch) == (expected[0].metrics, expected[0].rows, expected[0].best_epoch)


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.full), 3])
def test_p5_weights_and_metrics_are_equal_for_every_number_of_workers(home: Path, alone: dict[str, Any], workers: int) -> None:
    for actual in run_group(workers, home / f"group-{workers}", fit_in_turn, home, home / f"of-{workers}"):
        for case, expected in alone.items():
            assert_same(actual[case], expected)
    for case in CASES:
        logs = [read_digest_log(RunDirectory(str(home / folder / case))) for folder in (f"of-{workers}", "alone")]
        assert logs[0].digests == logs[1].digests
        assert logs[0].losses == logs[1].losses


def test_p5_a_stop_and_a_resume_on_another_number_of_workers_change_nothing(home: Path, alone: dict[str, Any]) -> None:
    case, folder = "fedprox, nesterov", home / "stopped"
    for trained, _ in run_group(2, home / "stopped-2", fit_run, home, folder, CASES[case], 3):
        assert not trained.finished
    assert_same(fit_run(WorkerContext(), home, folder, CASES[case]), alone[case])


def test_the_cases_differ_and_learn(alone: dict[str, Any]) -> None:
    assert len({digest for _, digest in alone.values()}) == len(CASES)
    assert min(trained.metrics["test/auc"] for trained, _ in alone.values()) > 0.7


def prepare_rounds(home: Path, context: WorkerContext | None = None, **changes: Any) -> tuple[Config, Task, Rounds]:
    config, version = training(home, **changes), open_dataset(training(home, **changes))
    task = build_task(config.task, version.manifest)
    return config, task, Rounds(version, train_order(config), config.train.strategy_as(Clients), context or WorkerContext(), draws=True)


def row_values(turn: Turn) -> Counter[float]:
    return Counter(torch.cat([batch["x0"] for batch in turn.batches()]).tolist())


def test_a_round_visits_the_rows_of_its_clients_and_no_others(home: Path) -> None:
    columns = raw(600, 0)
    _, _, rounds = prepare_rounds(home)
    mean, deviation = np.mean(columns["x0"]), np.std(columns["x0"])
    names = sorted(set(columns["writer"].to_pylist()))
    for number, played in zip(range(2), rounds, strict=True):
        assert len(played.turns) == CHOSEN["per_round"]
        owned = [prepare_rounds(home, WorkerContext(rank, 3))[2] for rank in range(3)]
        parts = [loader._round(number).turns for loader in owned]
        assert sorted(place for part in parts for place in part) == sorted(played.turns)
        for place, turn in played.turns.items():
            of_client = columns.filter(pa.compute.equal(columns["writer"], names[turn.client]))["x0"].to_numpy()
            actual = row_values(turn)
            assert set(actual.values()) == {CHOSEN["local_epochs"]}
            assert sorted(actual) == pytest.approx(sorted((of_client - mean) / deviation), abs=1e-5)
            assert row_values(next(part[place] for part in parts if place in part)) == actual


def test_clients_are_drawn_by_seed_and_round() -> None:
    fixed, private = (
        Clients(client_column="c", per_round=10),
        Clients(client_column="c", per_round=10, clip=1.0, noise=1.0, weighting="equal"),
    )
    rounds = [draw_clients(fixed, 100, 3, number).tolist() for number in range(60)]
    assert all(len(set(clients)) == 10 for clients in rounds)
    assert rounds == [draw_clients(fixed, 100, 3, number).tolist() for number in range(60)]
    assert len({client for clients in rounds for client in clients}) == 100
    sizes = [len(draw_clients(private, 1_000, 3, number)) for number in range(300)]
    assert np.mean(sizes) == pytest.approx(10, abs=0.6)
    assert np.std(sizes) == pytest.approx(np.sqrt(10 * 0.99), abs=0.5)
    assert max(sizes) < places(private, 1_000) < 60
    assert len(draw_clients(private, 10, 3, 0)) == places(private, 10) == 10


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_workers_play_equal_numbers_of_clients(workers: int) -> None:
    settings = Clients(client_column="c", per_round=20, clip=1.0, noise=1.0, weighting="equal")
    for number in range(20):
        places_taken, terms = assign_places(settings, 500, 0, number), places(settings, 500)
        counts = [len(places_taken.keys() & set(shard_range(rank, workers, terms))) for rank in range(workers)]
        assert sum(counts) == len(draw_clients(settings, 500, 0, number))
        assert max(counts) - min(counts) <= 1 + (terms % workers > 0)


def parameter_changes(strategy: Federated, played: Round, rate: float = 0.1) -> list[Tensor]:
    """The change of each parameter in a round."""
    before = [parameter.detach().clone() for parameter in strategy.model.parameters()]
    strategy.step(played, 0, rate, Flags())
    return [now.detach() - start for now, start in zip(strategy.model.parameters(), before, strict=True)]


def sgd_changes(task: Task, model: nn.Module, turn: Turn, proximal: float) -> list[Tensor]:
    """The change of each parameter by plain SGD on a client's batches, with the proximal term as FedProx writes it."""
    start = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in turn.batches():
        optimizer.zero_grad()
        loss, weight = task.loss(model, batch)
        distance = sum((parameter - before).square().sum() for parameter, before in zip(model.parameters(), start, strict=True))
        (loss / weight + proximal / 2 * distance).backward()
        optimizer.step()
    return [now.detach() - before for now, before in zip(model.parameters(), start, strict=True)]


@pytest.mark.parametrize(("proximal", "weighting"), [(0.0, "rows"), (2.0, "equal")])
def test_the_model_moves_by_the_mean_of_what_sgd_changes_at_each_client(home: Path, proximal: float, weighting: str) -> None:
    clients = {**CHOSEN, "proximal": proximal, "weighting": weighting}
    config, task, rounds = prepare_rounds(home, strategy={"kind": "federated", **clients})
    played = next(iter(rounds))
    strategy = create_strategy(config.train, task, WorkerContext())
    assert isinstance(strategy, Federated)
    turns = list(played.turns.values())
    rows = [sum(row_values(turn).values()) for turn in turns]
    assert len(set(rows)) > 1
    shares = [count / sum(rows) for count in rows] if weighting == "rows" else [1 / len(rows)] * len(rows)
    client_changes = [sgd_changes(task, create_strategy(config.train, task, WorkerContext()).model, turn, proximal) for turn in turns]
    expected = [sum(share * delta for share, delta in zip(shares, deltas, strict=True)) for deltas in zip(*client_changes, strict=True)]
    for actual, mean in zip(parameter_changes(strategy, played), expected, strict=True):
        torch.testing.assert_close(actual, mean, atol=1e-5, rtol=1e-4)
    assert strategy.metrics()["federated/rows"] == sum(rows) / CHOSEN["local_epochs"]


def total_norm(tensors: list[Tensor]) -> float:
    return float(nn.utils.get_total_norm(tensors))


def test_fedprox_keeps_clients_near_the_round_s_start(home: Path) -> None:
    norms = []
    for proximal in (0.0, 1.0, 5.0):
        config, task, rounds = prepare_rounds(home, strategy={"kind": "federated", **CHOSEN, "proximal": proximal})
        strategy = create_strategy(config.train.model_copy(update={"momentum": 0.0}), task, WorkerContext())
        strategy.step(next(iter(rounds)), 0, 0.1, Flags())
        norms.append(strategy.metrics()["federated/change_norm"])
    assert norms[0] > norms[1] > norms[2] > 0


def test_a_client_s_change_is_clipped(home: Path) -> None:
    config, task, rounds = prepare_rounds(home, strategy={"kind": "federated", **CHOSEN, "clip": 0.01, "per_round": 1})
    strategy = create_strategy(config.train, task, WorkerContext())
    assert isinstance(strategy, Federated)
    assert total_norm(parameter_changes(strategy, next(iter(rounds)))) == pytest.approx(0.01, rel=1e-4)
    assert strategy.metrics()["federated/clipped"] == 1
    assert strategy.metrics()["federated/change_norm"] > 0.01


def test_noise_is_added_once_to_the_sum_of_changes(home: Path) -> None:
    clients = {**CHOSEN, "clip": 1e-4, "noise": 1e4, "weighting": "equal"}
    config, task, rounds = prepare_rounds(home, strategy={"kind": "federated", **clients}, task={"hidden": [512]})
    strategy = create_strategy(config.train, task, WorkerContext())
    assert isinstance(strategy, Federated)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so much noise is beyond the accountant's orders
        changes = torch.cat([delta.flatten() for delta in parameter_changes(strategy, next(iter(rounds)))])
        assert strategy.metrics()["federated/epsilon"] < 0.1
    assert float(changes.std()) == pytest.approx(1 / CHOSEN["per_round"], rel=0.05)
    empty = replace(next(iter(rounds)), turns={})
    assert float(torch.cat([delta.flatten() for delta in parameter_changes(strategy, empty)]).std()) == pytest.approx(0.2, rel=0.05)


def test_noise_is_gaussian_and_drawn_by_seed_and_round() -> None:
    drawn_now = noise(1, 0, 100_001)
    assert drawn_now.shape == (100_001,)
    assert (drawn_now == noise(1, 0, 100_001)).all()
    assert abs(np.corrcoef(drawn_now, noise(1, 1, 100_001))[0, 1]) < 0.02
    assert abs(drawn_now.mean()) < 0.02
    assert drawn_now.std() == pytest.approx(1, abs=0.01)
    assert (np.abs(drawn_now) > 1.96).mean() == pytest.approx(0.05, abs=0.005)


def test_epsilon_is_that_of_published_accountants() -> None:
    """Abadi et al. 2016 give 1.26 for these, with a conversion to epsilon that is a little looser."""
    assert 1.0 < epsilon(0.01, 4.0, 10_000, 1e-5) < 1.26
    assert 2.5 < epsilon(256 / 60_000, 1.12, 14_063, 1e-5) < 2.92  # TensorFlow Privacy's tutorial
    assert epsilon(0.1, 1.0, 1, 1e-5) < epsilon(0.1, 1.0, 10, 1e-5) < epsilon(0.2, 1.0, 10, 1e-5) < epsilon(1.0, 1.0, 10, 1e-5)


def test_a_run_counts_rounds_and_leaves_no_rows_out(home: Path, alone: dict[str, Any]) -> None:
    config = training(home)
    assert total_steps(config, 30) == total_steps(config, 600) == alone["fedavg"][0].steps == 6
    assert left_out_rows(config, 600) == 0


def test_a_carried_column_reaches_neither_the_model_nor_who_serves_it(home: Path) -> None:
    manifest = open_dataset(training(home)).manifest
    assert "writer" in {column.name for column in manifest.columns}
    assert "writer" not in {column.name for column in build_task(training(home).task, manifest).data.columns}
    assert "writer" not in feature_encoders(manifest)
    assert "writer" not in input_schema(manifest).names
    assert b"writer 3" in manifest.to_json() and b"writer 3" not in drop_passthrough_columns(manifest).to_json()
    (first, *_) = Loader(open_dataset(training(home)), "train", train_order(training(home)), range(4))
    assert set(first) == {*feature_encoders(manifest), "label"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"strategy": {"kind": "federated", "per_round": 5}},
            "strategy is federated, but strategy.client_column is not set; name the column",
        ),
        (
            {"strategy": {"kind": "ddp", "client_column": "writer"}},
            "train.strategy.client_column: no such setting; choose one of kind, compression (got writer)",
        ),
        (
            {"strategy": {"kind": "federated", **CHOSEN, "per_round": 3}},
            "global_batch is 40; it must be a multiple of 3, strategy.per_round",
        ),
        (
            {"strategy": {"kind": "federated", **CHOSEN, "per_round": 2}, "workers": 4},
            "workers is 4; it must be at most 2, strategy.per_round",
        ),
        (
            {"strategy": {"kind": "federated", **CHOSEN, "noise": 1.0, "weighting": "equal"}},
            "strategy.noise is 1, but strategy.clip is not set",
        ),
        ({"strategy": {"kind": "federated", **CHOSEN, "noise": 1.0, "clip": 1.0}}, "strategy.noise is 1 and strategy.weighting is rows"),
        (
            {"strategy": {"kind": "federated", **CHOSEN, "noise": 1.0, "clip": 1.0, "weighting": "equal"}, "seed": 0},
            "but seed is 0, the default, from which",
        ),
        ({"strategy": {"kind": "federated", **CHOSEN, "delta": 1e-7}}, "strategy.delta: has no effect while train.strategy.noise is 0"),
        (
            {"strategy": {"kind": "federated", **CHOSEN, "outer_lr": 0.5}},
            "outer_lr: has no effect while train.strategy.outer is average",
        ),
        ({"strategy": {"kind": "federated", **CHOSEN, "noise": -1.0}}, "strategy.noise: must be at least 0"),
        ({"strategy": {"kind": "federated", **CHOSEN, "proximal": -0.1}}, "strategy.proximal: must be at least 0"),
        ({"strategy": {"kind": "federated", **CHOSEN, "clip": 0}}, "strategy.clip: must be greater than 0"),
        ({"compile": True}, "compile is true, which strategy federated does not support"),
        ({"precision": "fp16"}, "precision is fp16, whose loss scaling would begin anew with every client"),
    ],
)
def test_settings_that_do_not_fit_are_refused(home: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        training(home, **changes)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("clients", "task", "message"),
    [
        (
            {"client_column": "writers"},
            {},
            r"train.strategy.client_column is writers, which is no tensor column of .*; did you mean writer\?",
        ),
        (
            {"client_column": "x0"},
            {},
            r"train.strategy.client_column is x0, which has float32 of shape \(\) per row; it must be one whole number",
        ),
        ({"per_round": 20}, {}, "train.strategy.per_round is 20, but writer has only 12 clients; lower it"),
        (
            {"clip": 1.0, "noise": 1.0, "weighting": "equal", "delta": 0.1},
            {},
            "train.strategy.delta is 0.1; it must be less than 1 / 12, the number of clients; lower it",
        ),
        (
            {"clip": 1.0, "noise": 1.0, "weighting": "equal"},
            {"batch_norm": True},
            "train.strategy.noise is 1, but the model has buffers, such as .*, to which no noise is added",
        ),
    ],
)
def test_a_dataset_without_such_clients_is_refused_before_a_worker_starts(
    home: Path, clients: dict[str, Any], task: dict[str, Any], message: str
) -> None:
    config = training(home, strategy={"kind": "federated", **CHOSEN, **clients}, task=task)
    with pytest.raises(ConfigError, match=message) as refused:
        check_training(config, open_dataset(config))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("vocabulary", "1 training rows have no client: writer is NULL or rare there"),
        ({"encoder": "hash", "buckets": 50}, "the encoder hash makes: different clients get the same number"),
    ],
)
def test_rows_whose_client_is_unknown_are_refused(tmp_path: Path, encoder: Any, message: str) -> None:
    rows = raw(200, 0)
    rows = rows.set_column(rows.schema.get_field_index("writer"), "writer", pa.array([None, *rows["writer"].to_pylist()[1:]]))
    features = {f"x{number}": "standardize" for number in range(FEATURES)}
    settings = {**SETTINGS, "strategy": {"kind": "federated", **CHOSEN}}
    config = training_on(
        {"train": rows}, tmp_path, features, {"label": "binary"}, {"kind": "tabular"}, carried={"writer": encoder}, **settings
    )
    with pytest.raises(ConfigError, match=message):
        check_training(config, open_dataset(config))


def test_a_split_without_rows_has_no_clients(home: Path) -> None:
    config, version = training(home), open_dataset(training(home))
    empty = replace(version, row_groups=version.split_row_groups("test"))
    with pytest.raises(ConfigError, match=r"has no rows in split train, and so no clients; give it a share in dataset.split"):
        check_training(config, empty)


@pytest.mark.parametrize(("batch_norm", "grad_accum_steps", "message"), [(True, 1, "2 of 4"), (True, 3, "4 of 4"), (False, 1, "")])
def test_a_client_whose_batch_has_a_single_row_is_refused_with_batch_norm(
    tmp_path: Path, batch_norm: bool, grad_accum_steps: int, message: str
) -> None:
    """A batch has 4 rows at most, so that those of the client with 6 rows have 3 each."""
    rows = raw(12, 0)
    names = ["a"] + ["b"] + ["c"] * 4 + ["d"] * 6
    rows = rows.set_column(rows.schema.get_field_index("writer"), "writer", pa.array(names))
    settings = {
        **SETTINGS,
        "strategy": {"kind": "federated", **CHOSEN, "per_round": 2},
        "global_batch": 8,
        "grad_accum_steps": grad_accum_steps,
    }
    features, task = {f"x{number}": "standardize" for number in range(FEATURES)}, {"kind": "tabular", "batch_norm": batch_norm}
    config = training_on({"train": rows}, tmp_path, features, {"label": "binary"}, task, carried={"writer": "label"}, **settings)
    if not message:
        check_training(config, open_dataset(config))
        return
    with pytest.raises(ConfigError, match=f"the model has a batch norm, but {message} clients of writer have a batch, or a part of one"):
        check_training(config, open_dataset(config))


@pytest.mark.parametrize(
    ("names", "settings", "offered"),
    [
        ("abbcc", {}, ""),
        ("aabb", {"global_batch": 2, "shards": 2}, "raise train.global_batch, "),
        ("aaaabbbb", {"grad_accum_steps": 3}, "lower train.grad_accum_steps, "),
        ("aaaaaaaabbbbbbbb", {"grad_accum_steps": 3}, "raise train.global_batch, lower train.grad_accum_steps, "),
    ],
)
def test_only_what_helps_is_offered_for_clients_with_batches_of_a_row(
    tmp_path: Path, names: str, settings: dict[str, Any], offered: str
) -> None:
    rows = pa.table({"x": np.arange(len(names), dtype="float32"), "writer": list(names), "label": [name == "a" for name in names]})
    train_settings = {**SETTINGS, "strategy": {"kind": "federated", **CHOSEN, "per_round": 2}, "global_batch": 8, **settings}
    features, task = {"x": "standardize"}, {"kind": "tabular", "batch_norm": True}
    config = training_on({"train": rows}, tmp_path, features, {"label": "binary"}, task, carried={"writer": "label"}, **train_settings)
    with pytest.raises(
        ConfigError, match=f"leave these clients out in source.query, {offered}or take a network without one, as by task.batch_norm false"
    ):
        check_training(config, open_dataset(config))


def test_a_loss_that_is_not_a_number_is_of_a_worker_and_of_no_shard(home: Path) -> None:
    step = StepStatistics(3, -1.0, float("nan"), float("nan"), 8.0, 8.0, 0, 0, 0)
    with pytest.raises(NonFiniteError, match="step 3: the loss is nan, from worker 0: the last complete checkpoint is kept"):
        check_step(step, Mesh(WorkerContext()), training(home).train, 0)

"""Strategy `local_sgd`: replicas that take steps of their own, brought together by an outer step; workers only play them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from trainings import StopsAfter, open_dataset, training

from pipelines.config.train.train import Train
from pipelines.data.loader import shard_range
from pipelines.errors import NonFiniteError
from pipelines.launch.worker import ReplayCheck, ReplayComparison
from pipelines.runtime.weights import model_digest
from pipelines.strategies.local_sgd.local_sgd import Int8Means, LocalSgd
from pipelines.strategies.local_sgd.settings import Settings
from pipelines.strategies.replica import Outer
from pipelines.tasks.base import Batch
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoint_record import DigestLog, read_digest_log
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.step_statistics import Flags
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

# Epochs end with a short step, in which two of four replicas have no rows unless a batch norm needs some.
SETTINGS: dict[str, Any] = {
    "strategy": "local_sgd",
    "shards": 8,
    "global_batch": 64,
    "epochs": 2,
    "remainder": "keep",
    "clip_norm": 1.0,
    "rows": 962,
    "task": {"dropout": 0.2},
    "checkpoint": {"every_steps": 20},
}
NORMALISED: dict[str, Any] = {"task": {"dropout": 0.2, "batch_norm": True}}
CASES: dict[str, dict[str, Any]] = {
    "average": {**NORMALISED, "global_batch": 56, "strategy": {"kind": "local_sgd", "inner_steps": 5}},
    "nesterov, int8": {"strategy": {"kind": "local_sgd", "inner_steps": 5, "outer": "nesterov", "deltas": "int8"}},
    "3 replicas, int8, sgd": {
        **NORMALISED,
        "shards": 6,
        "global_batch": 66,
        "optimizer": "sgd",
        "lr": 0.1,
        "strategy": {"kind": "local_sgd", "replicas": 3, "deltas": "int8"},
    },
}


def fit_run(
    context: WorkerContext, home: Path, folder: Path, changes: dict[str, Any], stop_after: int | None = None
) -> tuple[Trained, str]:
    """The result of a training, and the digest of its model."""
    config = training(home, **{**SETTINGS, **changes})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(str(folder)), context, 2)
    trained = Loop(config, version, task, strategy, checkpoints, StopsAfter(stop_after)).run()
    return trained, model_digest(strategy.model.state_dict())


def read_saved_digests(folder: Path) -> dict[int, dict[str, str]]:
    """The digests of all tensors of a run, by the step after which they were saved."""
    return read_digest_log(RunDirectory(str(folder))).digests


def fit_in_turn(context: WorkerContext, home: Path, folder: Path) -> dict[str, Any]:
    return {case: fit_run(context, home, folder / case, changes) for case, changes in CASES.items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("local")
    training(folder, **SETTINGS)
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
        assert read_saved_digests(home / f"of-{workers}" / case) == read_saved_digests(home / "alone" / case)


@pytest.mark.full
def test_p5_a_stop_and_a_resume_on_another_number_of_workers_change_nothing(home: Path, alone: dict[str, Any]) -> None:
    case, folder = "nesterov, int8", home / "stopped"
    for workers, stop_after in ((4, 7), (2, 12)):
        for trained, _ in run_group(workers, home / f"stopped-{workers}", fit_run, home, folder, CASES[case], stop_after):
            assert not trained.finished
    assert_same(fit_run(WorkerContext(), home, folder, CASES[case]), alone[case])


def test_the_cases_differ_and_learn(alone: dict[str, Any]) -> None:
    assert len({digest for _, digest in alone.values()}) == len(CASES)
    assert min(trained.metrics["test/auc"] for trained, _ in alone.values()) > 0.8


@pytest.mark.usefixtures("alone")
def test_a_checkpoint_has_the_digests_of_every_replica(home: Path) -> None:
    saved = read_saved_digests(home / "alone" / "nesterov, int8")
    digests = saved[max(saved)]
    for number in range(4):
        replica_digests = [digests[f"replicas.{number}.{name}.layers.0.weight"] for name in ("model", "errors")]
        assert digests[f"replicas.{number}.optimizer.state.layers.0.weight.exp_avg"] not in replica_digests
    assert "outer.optimizer.state.layers.0.weight.momentum_buffer" in digests


def replay_run(context: WorkerContext, home: Path, log: DigestLog, folder: Path, changes: dict[str, Any]) -> ReplayComparison:
    config = training(home, **{**SETTINGS, **changes})
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    check = ReplayCheck(strategy, log, None)
    Loop(config, version, task, strategy, Checkpoints(RunDirectory(str(folder)), context, 2), Hooks()).run()
    return check.comparison


@pytest.mark.usefixtures("alone")
def test_p5_a_replay_on_other_workers_compares_the_tensors_of_all(home: Path) -> None:
    case = "nesterov, int8"
    log = read_digest_log(RunDirectory(str(home / "alone" / case)))
    altered = "replicas.0.optimizer.state.layers.0.weight.exp_avg"
    last = max(log.digests)
    log.digests[last] = {**log.digests[last], altered: "0" * 64}
    for actual in run_group(2, home / "replay", replay_run, home, log, home / "again", CASES[case]):
        assert (actual.losses, actual.loss, actual.tensors) == (len(log.losses), None, (last, [altered]))


ROWS, FEATURES = 24, 5


class Linear(nn.Linear):
    means_sum: Tensor

    def __init__(self) -> None:
        super().__init__(FEATURES, 1)
        self.register_buffer("means_sum", torch.zeros(()))

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        if self.training:
            self.means_sum += batch["x"].mean()
        return super().forward(batch["x"]).squeeze(1)


class Squares:
    """The part of a task that a strategy calls; rows have weights."""

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        errors = model(batch) - batch["label"]
        return (batch["weight"] * errors.square()).sum(), batch["weight"].sum()


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return Linear()


def rows() -> Batch:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    return {"x": x, "label": x.sum(1), "weight": torch.ones(ROWS)}


def cut(batch: Batch, parts: int) -> list[Batch]:
    return [{name: values.chunk(parts)[part] for name, values in batch.items()} for part in range(parts)]


def local(local_sgd: dict[str, Any], **changes: Any) -> LocalSgd:
    values = {"strategy": "local_sgd", "global_batch": ROWS, "shards": 4, "optimizer": "sgd", "momentum": 0, "weight_decay": 0, **changes}
    return LocalSgd(
        Train.model_validate({**values, "strategy": {"kind": "local_sgd", **local_sgd}}), Squares(), build_model, WorkerContext()
    )  # type: ignore[arg-type]


def plain_steps(model: nn.Module, batch: Batch, steps: int, rate: float) -> list[Tensor]:
    """Parameters after gradient descent written out."""
    model.train()
    for _ in range(steps):
        loss, weight = Squares().loss(model, batch)
        gradients = torch.autograd.grad(loss / weight, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(rate * gradient)
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_an_average_after_every_step_is_gradient_descent_on_the_whole_batch() -> None:
    strategy = local({"replicas": 4, "inner_steps": 1})
    for number in range(3):
        result = strategy.step(cut(rows(), 4), number, 0.1, Flags(stop=True))
    torch.testing.assert_close(list(strategy.model.parameters()), plain_steps(build_model(), rows(), 3, 0.1), rtol=1e-5, atol=1e-6)
    assert (float(result.rows), float(result.weight), result.flags.tolist()) == (ROWS, ROWS, [0, 1, 0, 0])
    assert strategy.model.means_sum == pytest.approx(3 * float(rows()["x"].mean()), abs=1e-6)


def test_sums_and_norm_of_a_step_are_over_the_replicas() -> None:
    parts, expected = cut(rows(), 4), []
    for part in parts:
        model = build_model()
        loss, weight = Squares().loss(model, part)
        gradients = torch.autograd.grad(loss / weight, list(model.parameters()))
        expected.append((float(loss.detach()), float(torch.cat([gradient.flatten() for gradient in gradients]).norm())))
    result = local({"replicas": 4}).step(parts, 0, 0.1, Flags())
    assert float(result.loss_sum) == float(result.own_loss_sum) == pytest.approx(sum(loss for loss, _ in expected), rel=1e-6)
    assert float(result.grad_norm) == pytest.approx(sum(norm for _, norm in expected) / 4, rel=1e-5)
    assert local({"replicas": 4}).step(parts, 0, 0.1, Flags(), compute_grad_norm=False).grad_norm == -1


def test_diloco_is_nesterov_on_the_mean_delta() -> None:
    """Two rounds of three steps, with the outer step written as its formula."""
    parts, rate, momentum = cut(rows(), 2), 0.7, 0.9
    strategy = local({"replicas": 2, "inner_steps": 3, "outer": "nesterov"})
    for number in range(6):
        strategy.step(parts, number, 0.05, Flags())
    start = [parameter.detach().clone() for parameter in build_model().parameters()]
    velocity = [torch.zeros_like(values) for values in start]
    for _ in range(2):
        ends = []
        for part in parts:
            model = build_model()
            with torch.no_grad():
                for parameter, values in zip(model.parameters(), start, strict=True):
                    parameter.copy_(values)
            ends.append(plain_steps(model, part, 3, 0.05))
        gradients = [values - (first + second) / 2 for values, first, second in zip(start, *ends, strict=True)]
        velocity = [momentum * before + gradient for before, gradient in zip(velocity, gradients, strict=True)]
        start = [values - rate * (gradient + momentum * speed) for values, gradient, speed in zip(start, gradients, velocity, strict=True)]
    torch.testing.assert_close(list(strategy.model.parameters()), start, rtol=1e-5, atol=1e-6)


def test_between_outer_steps_the_model_is_the_mean_and_replicas_stay_apart() -> None:
    strategy, parts = local({"replicas": 2, "inner_steps": 4}), cut(rows(), 2)
    for number in range(2):
        strategy.step(parts, number, 0.05, Flags())
    by_replica = [[values.detach().clone() for values in replica.model_state.parameters] for replica in strategy._replicas.values()]
    strategy.predict(rows())
    ends = [plain_steps(build_model(), part, 2, 0.05) for part in parts]
    torch.testing.assert_close(by_replica, ends)
    assert not torch.equal(by_replica[0][0], by_replica[1][0])
    torch.testing.assert_close(list(strategy.model.parameters()), [(first + second) / 2 for first, second in zip(*ends, strict=True)])
    for before, replica in zip(by_replica, strategy._replicas.values(), strict=True):
        assert all(map(torch.equal, before, replica.model_state.parameters))


def test_a_replica_without_rows_waits() -> None:
    strategy, (first, second) = local({"replicas": 2, "inner_steps": 8}, precision="fp16"), cut(rows(), 2)
    empty = {name: values[:0] for name, values in second.items()}
    result = strategy.step([first, empty], 0, 0.05, Flags())
    assert (float(result.rows), float(result.grad_norm) > 0) == (ROWS / 2, True)
    _, waiting = strategy._replicas.values()
    assert all(map(torch.equal, waiting.model_state.parameters, build_model().parameters()))


class Drops(Linear):
    """Says what dropout it drew."""

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        return super().forward({"x": nn.functional.dropout(torch.ones(len(batch["x"]), FEATURES), 0.5)})


def test_dropout_is_of_the_step_and_the_replica() -> None:
    def losses(first_step: int) -> list[float]:
        settings = Train.model_validate({"strategy": "local_sgd", "global_batch": ROWS, "shards": 4, "lr": 1e-9})
        strategy = LocalSgd(settings, Squares(), Drops, WorkerContext())  # type: ignore[arg-type]
        strategy._mean.model.load_state_dict(build_model().state_dict())
        for replica in strategy._replicas.values():
            replica.model_state.model.load_state_dict(build_model().state_dict())
        same = [{name: values[:6] for name, values in rows().items()}] * 4
        actual = [replica.step(batch, first_step, 1e-9, False)[0] for replica, batch in zip(strategy._replicas.values(), same, strict=True)]
        return [float(loss) for loss in actual]

    assert len({*losses(0), *losses(1)}) == 8
    assert losses(1) == losses(1)


@given(st.integers(1, 6), st.integers(1, 4), st.floats(1e-30, 1e30))
def test_what_int8_leaves_out_is_sent_later(replicas: int, rounds: int, size: float) -> None:
    generator = torch.Generator().manual_seed(replicas)
    like = [torch.zeros(3, 2), torch.zeros(5), torch.zeros(0), torch.zeros(1)]
    means = Int8Means(like, [range(replicas)], 0)
    exact_totals, sent = [torch.zeros_like(tensor, dtype=torch.float64) for tensor in like], [torch.zeros_like(tensor) for tensor in like]
    for _ in range(rounds):
        values_by_replica = [[size * torch.randn(tensor.shape, generator=generator) for tensor in like] for _ in range(replicas)]
        for total, *of_replicas in zip(exact_totals, *values_by_replica, strict=True):
            total.add_(torch.stack(of_replicas).double().mean(0))
        for total, mean in zip(sent, means.mean(values_by_replica), strict=True):
            total.add_(mean)
    unsent = [torch.stack(of_replicas).double().mean(0) for of_replicas in zip(*means.errors.values(), strict=True)]
    for total, out, behind in zip(exact_totals, sent, unsent, strict=True):
        torch.testing.assert_close(out.double() + behind, total, rtol=1e-4, atol=size * 1e-5)
        assert not len(total) or float(behind.abs().max()) <= size * 5 / 127


def int8_means(context: WorkerContext, replicas: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    by_replica = [[torch.randn(7, generator=generator), torch.randn(2, 3, generator=generator) * 100] for _ in range(replicas)]
    played = [shard_range(rank, context.world_size, replicas) for rank in range(context.world_size)]
    means = Int8Means(by_replica[0], played, context.rank)
    return [mean for _ in range(3) for mean in means.mean([by_replica[number] for number in played[context.rank]])]


def test_two_workers_with_a_replica_each_exchange_whole_int8_deltas(tmp_path: Path) -> None:
    """Others, as in the trainings above, exchange parts of sums."""
    expected = int8_means(WorkerContext(), 2)
    for actual in run_group(2, tmp_path, int8_means, 2):
        assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_int8_hides_no_value_that_is_not_finite(value: float) -> None:
    means = Int8Means([torch.zeros(3)], [range(2)], 0)
    (mean,) = means.mean([[torch.tensor([0.0, value, 1.0])], [torch.ones(3)]])
    assert not mean.isfinite().all()


def test_a_mean_of_nothing_changed_changes_no_bit() -> None:
    model = Linear()
    nn.init.constant_(model.bias, 1 / 3)
    before = model_digest(model.state_dict())
    for settings in (Settings(), Settings(outer="nesterov"), Settings(outer="nesterov", outer_momentum=0)):
        Outer(settings, model).step([torch.zeros_like(values) for values in model.parameters()], torch.zeros(1, dtype=torch.float64))
        assert model_digest(model.state_dict()) == before


def test_a_replica_that_is_not_finite_ends_the_run(home: Path) -> None:
    with pytest.raises(NonFiniteError):
        fit_run(WorkerContext(), home, home / "infinite", {**CASES["nesterov, int8"], "optimizer": "sgd", "lr": 1e30, "clip_norm": None})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"strategy": {"kind": "local_sgd", "replicas": 3}},
            "strategy.replicas is 3; it must divide 8, the number of shards: choose from 1, 2, 4, 8",
        ),
        ({"workers": [1, 5]}, "workers is 5; it must be at most 4, strategy.replicas; reduce it, or raise that"),
        (
            {"grad_accum_steps": 17},
            "grad_accum_steps is 17, more than the 16 rows of a replica in a step; reduce it, or raise global_batch",
        ),
        ({"sync_batch_norm": True}, "sync_batch_norm sums over workers, which strategy local_sgd does not support"),
        ({"compile": True}, "compile is true, which strategy local_sgd does not support; set it to false"),
        ({"strategy": {"kind": "local_sgd", "outer_momentum": 1}}, "less than 1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Train.model_validate({"strategy": "local_sgd", "shards": 8, "global_batch": 64, **settings})
    assert Train.model_validate({"strategy": "local_sgd", "shards": 8, "global_batch": 64, "grad_accum_steps": 16}).strategy.replicas == 4

"""Strategies: the gradient is that of the whole global batch, whoever computed which rows of it."""

import re
from copy import deepcopy
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from pipelines.config.plugins import import_class
from pipelines.config.tasks.task import TabularSettings as Settings
from pipelines.config.train.strategy import STRATEGIES, StrategySettings, strategy_kinds_with
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError, TrainingError
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.tabular import Tabular
from pipelines.train import ordered_all_reduce
from pipelines.train.ddp import ddp
from pipelines.train.step_statistics import Flags, StepResult
from pipelines.train.strategy import Strategy, create_strategy, strategy_class
from pipelines.train.workers import WorkerContext

COLUMNS = (
    TensorColumn(name="x", dtype="float32", shape=(6,)),
    TensorColumn(name="kind", dtype="int32", cardinality=5),
    TensorColumn(name="label", dtype="int64", role="target", cardinality=3),
)
ROWS = 24
SHARES = {"equal": (8, 8, 8), "unequal": (15, 7, 2), "two have none": (0, 24, 0), "the first has none": (0, 5, 19)}
WORKERS = 3
NO_FLAGS = Flags()


def test_every_name_leads_to_a_strategy_and_reproducible_ones_can_be_verified() -> None:
    assert [*STRATEGIES.by_name] == [
        "ddp",
        "exact",
        "ensemble_selection",
        "boosting",
        "federated",
        "local_sgd",
        "parameter_server",
        "sharded",
    ]
    assert strategy_kinds_with("reproducible") == ["exact", "ensemble_selection", "boosting", "federated", "local_sgd"]
    for kind in STRATEGIES.by_name:
        settings = STRATEGIES.class_for(kind)(kind=kind)
        assert issubclass(import_class(settings.implementation, Strategy), Strategy), kind


def test_what_is_no_strategy_is_refused_by_name() -> None:
    class Misled(StrategySettings):
        implementation = "pipelines.train.workers:Mesh"
        kind: str = "misled"

    with pytest.raises(
        ConfigError, match=r"train.strategy: 'pipelines.train.workers:Mesh' is not a strategy; it must name a class derived"
    ):
        strategy_class(Train(strategy=Misled()))


def task(batch_norm: bool = False) -> Tabular:
    """Classes weigh 1, 5 and 0.1, so the weight of a batch is not its number of rows."""
    return Tabular(Settings(hidden=(16,), class_weights=(1.0, 5.0, 0.1), batch_norm=batch_norm), Data(COLUMNS, ("a", "b", "c")))


def train(**settings: Any) -> Train:
    return Train.model_validate({"global_batch": ROWS, "optimizer": "sgd", "momentum": 0, "weight_decay": 0, "lr": 1, **settings})


def rows() -> Batch:
    generator = torch.Generator().manual_seed(5)
    return {
        "x": torch.randn(ROWS, 6, generator=generator),
        "kind": torch.randint(5, (ROWS,), generator=generator, dtype=torch.int32),
        "label": torch.randint(3, (ROWS,), generator=generator).sort().values,
    }


def part(batch: Batch, shares: tuple[int, ...], rank: int) -> Batch:
    return {name: values.split(shares)[rank] for name, values in batch.items()}


def numbers(result: StepResult) -> list[float]:
    """A step's result in the order of its fields, flags last."""
    sums = (result.grad_norm, result.own_loss_sum, result.loss_sum, result.weight, result.rows)
    return [*map(float, sums), *result.flags.tolist()]


def one_step(
    context: WorkerContext, settings: Train, shares: tuple[int, ...], batch_norm: bool = False
) -> tuple[dict[str, Tensor], list[float]]:
    """The weights after one step of gradient descent, and the step's sums."""
    strategy = create_strategy(settings, task(batch_norm), context)
    flags = Flags(save=context.rank > 0, written=True)
    result = strategy.step(part(rows(), shares, context.rank), 0, settings.lr, flags)
    while result.grad_norm.isinf():  # fp16 leaves a step out, and lowers its scale
        result = strategy.step(part(rows(), shares, context.rank), 0, settings.lr, flags)
    strategy.sync_buffers()
    return {name: values.clone() for name, values in strategy.model.state_dict().items()}, numbers(result)


def two_steps(context: WorkerContext, in_memory: bool = False) -> tuple[dict[str, Tensor], list[list[float]]]:
    """DistributedDataParallel has one bucket in its first step, and sorts them for the second."""
    strategy = ddp.DataParallel(train(lr=0.1), task(), model_of_seed, context)
    shares = SHARES["unequal"] if context.world_size > 1 else (ROWS,)
    flags = Flags(save=True, written=True)
    sums = [numbers(strategy.step(part(rows(), shares, context.rank), number, 0.1, flags)) for number in range(2)]
    assert bool(strategy._in_memory) == in_memory
    return dict(strategy.model.state_dict()), sums


def reference(settings: Train) -> tuple[dict[str, Tensor], float]:
    """Compute the same step by hand: gradient of the weighted mean over all rows. Weights, and the gradient's norm."""
    torch.manual_seed(settings.seed)
    model = task().model()
    total, weight = task().loss(model, rows())
    (total / weight).backward()
    norm = nn.utils.get_total_norm([values.grad for values in model.parameters() if values.grad is not None])
    factor = 1.0 if settings.clip_norm is None else min(1.0, settings.clip_norm / float(norm))
    return {name: (values - settings.lr * factor * values.grad).detach() for name, values in model.named_parameters()}, float(norm)


def steps_in_a_group(context: WorkerContext) -> dict[str, Any]:
    """All that the tests below look at: starting processes takes longer than the steps."""
    results: dict[str, Any] = {name: one_step(context, train(), shares) for name, shares in SHARES.items()}
    results["accumulated"] = one_step(context, train(grad_accum_steps=3), SHARES["unequal"])
    results["clipped"] = one_step(context, train(clip_norm=0.1), SHARES["unequal"])
    results["bf16"] = one_step(context, train(precision="bf16"), SHARES["unequal"])
    results["fp16"] = one_step(context, train(precision="fp16"), SHARES["unequal"])
    for name, shares in SHARES.items():
        results[f"batch norm, {name}"] = one_step(context, train(sync_batch_norm=True), shares, batch_norm=True)
    few_rows = train(sync_batch_norm=True, shards=1, grad_accum_steps=12)
    results["passes without rows"] = one_step(context, few_rows, SHARES["equal"], batch_norm=True)
    results["own batch norm"] = one_step(context, train(), SHARES["equal"], batch_norm=True)
    ddp._CPU_BUCKET_MB = 1e-4
    results["many buckets, in memory"] = two_steps(context, in_memory=True)
    ordered_all_reduce._map_file = lambda *_: None  # as on another machine
    results["many buckets, sent"] = two_steps(context)
    return results


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_group(WORKERS, tmp_path_factory.mktemp("group"), steps_in_a_group)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-6) -> None:
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(actual[name], values, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("shares", SHARES)
def test_ddp_takes_the_gradient_of_the_whole_batch(group: list[dict[str, Any]], shares: str) -> None:
    expected, norm = reference(train())
    for answer in group:
        weights, sums = answer[shares]
        assert_same(weights, expected)
        assert sums[0] == pytest.approx(norm, rel=1e-5)


def test_a_mean_under_ddp_would_be_wrong() -> None:
    """The tests above would miss this if the shares' weights were equal."""
    means = [task().loss(model_of_seed(), part(rows(), SHARES["unequal"], rank)) for rank in range(WORKERS)]
    mean_of_means = sum(float((total / weight).detach()) for total, weight in means) / WORKERS
    total, weight = task().loss(model_of_seed(), rows())
    assert abs(mean_of_means - float((total / weight).detach())) > 0.02


def model_of_seed() -> nn.Module:
    torch.manual_seed(0)
    return task().model()


def test_accumulation_only_splits_the_pass(group: list[dict[str, Any]]) -> None:
    expected, _ = reference(train())
    weights, sums = group[0]["accumulated"]
    assert_same(weights, expected)
    assert sums == pytest.approx(group[0]["unequal"][1], rel=1e-5), "what is summed beside the gradients is counted once"


def test_clipping_is_by_the_norm_of_the_mean_gradient(group: list[dict[str, Any]]) -> None:
    expected, norm = reference(train(clip_norm=0.1))
    weights, sums = group[1]["clipped"]
    assert norm > 0.2
    assert_same(weights, expected, tolerance=1e-5)
    assert sums[0] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.03), ("fp16", 0.01)])
def test_half_precision_is_close(group: list[dict[str, Any]], precision: str, tolerance: float) -> None:
    expected, _ = reference(train())
    weights, sums = group[0][precision]
    assert_same(weights, expected, tolerance)
    assert sums[1:] == pytest.approx(group[0]["unequal"][1][1:], rel=tolerance), "fp16 scales nothing but the loss"
    assert any(not torch.equal(weights[name], expected[name]) for name in expected)


def test_sums_and_flags_are_of_all_workers(group: list[dict[str, Any]]) -> None:
    total, weight = task().loss(model_of_seed(), rows())
    for rank, answer in enumerate(group):
        worker_sum, _ = task().loss(model_of_seed(), part(rows(), SHARES["unequal"], rank))
        _, (_, own_loss, loss, loss_weight, count, *flags) = answer["unequal"]
        assert (own_loss, loss, loss_weight) == pytest.approx((float(worker_sum.detach()), float(total.detach()), float(weight)), rel=1e-5)
        assert (count, flags) == (ROWS, [2.0, 0.0, 3.0, 0.0])


@pytest.mark.parametrize("way", ["in memory", "sent"])
def test_sums_are_of_all_workers_with_gradients_of_several_buckets(group: list[dict[str, Any]], way: str) -> None:
    expected, alone = two_steps(WorkerContext())
    for weights, sums in (answer[f"many buckets, {way}"] for answer in group):
        assert_same(weights, expected)
        for group_sums, alone_sums in zip(sums, alone, strict=True):
            assert group_sums[2:5] == pytest.approx(alone_sums[2:5], rel=1e-5)
            assert group_sums[5:] == [3.0, 0.0, 3.0, 0.0]


def test_passes_without_rows_leave_batch_norm_statistics_as_on_one_worker(group: list[dict[str, Any]]) -> None:
    torch.manual_seed(0)
    alone = task(batch_norm=True).model()
    for number in range(8):
        alone({name: values[number::8] for name, values in rows().items()})
    for weights, _ in (answer["passes without rows"] for answer in group):
        assert_same({name: weights[name] for name, _ in alone.named_buffers()}, dict(alone.named_buffers()))


class Sparse(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3, sparse=True)

    def forward(self, batch: Batch) -> Tensor:
        return self.table(batch["kind"])


class Unused(nn.Linear):
    """A weight that no loss depends on."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.spare = nn.Parameter(torch.ones(2))

    def forward(self, batch: Batch) -> Tensor:  # type: ignore[override]
        return super().forward(batch["x"])


def take_refused_step(context: WorkerContext, model: type[nn.Module], way: str) -> None:
    if way == "sent":
        ordered_all_reduce._map_file = lambda *_: None
    compression = "none" if way in ("in memory", "sent") else way
    strategy = ddp.DataParallel(train(strategy={"kind": "ddp", "compression": compression}), task(), model, context)
    strategy.step(part(rows(), (12, 12), context.rank), 0, 0.1, NO_FLAGS)


@pytest.mark.parametrize("way", ["in memory", "sent", "bf16", "topk"])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Sparse, "its gradient is sparse, which no optimizer here supports; set sparse=False"),
        (Unused, "spare had no part in the loss, .*; remove it from the model, set requires_grad=False, or set train.strategy to exact"),
    ],
)
def test_gradients_that_cannot_be_summed_are_refused(tmp_path: Path, model: type[nn.Module], message: str, way: str) -> None:
    for error in run_group(2, tmp_path, take_refused_step, model, way):
        assert isinstance(error, ConfigError), error
        assert re.search(message, str(error)), error


def test_a_worker_alone_may_have_a_weight_that_nothing_uses() -> None:
    strategy = ddp.DataParallel(train(), task(), Unused, WorkerContext())
    strategy.step(rows(), 0, 0.1, NO_FLAGS)
    assert strategy.model.state_dict()["spare"].tolist() == [1.0, 1.0]
    with pytest.raises(ConfigError, match=r"table\.weight: its gradient is sparse"):
        ddp.DataParallel(train(), task(), Sparse, WorkerContext()).step(rows(), 0, 0.1, NO_FLAGS)


@pytest.mark.parametrize("shares", SHARES)
def test_synchronised_batch_norm_sees_all_rows(group: list[dict[str, Any]], shares: str) -> None:
    expected, _ = one_step(WorkerContext(), train(), (ROWS,), batch_norm=True)
    for answer in group:
        assert_same(answer[f"batch norm, {shares}"][0], expected, tolerance=2e-5)


def test_batch_norm_of_its_own_rows_is_averaged(group: list[dict[str, Any]]) -> None:
    alone = [one_step(WorkerContext(rank, 1), train(), SHARES["equal"], batch_norm=True)[0] for rank in range(WORKERS)]
    mean = torch.stack([weights["layers.1.running_mean"] for weights in alone]).mean(0)
    for answer in group:
        torch.testing.assert_close(answer["own batch norm"][0]["layers.1.running_mean"], mean)


def test_a_step_without_any_weight_changes_nothing() -> None:
    strategy = create_strategy(train(), task(), WorkerContext())
    before = {name: values.clone() for name, values in strategy.model.state_dict().items()}
    result = strategy.step({name: values[:0] for name, values in rows().items()}, 0, 1.0, NO_FLAGS)
    assert numbers(result) == [0.0] * 9
    assert_same(dict(strategy.model.state_dict()), before)


def test_a_norm_that_nobody_asks_for_is_not_taken() -> None:
    unclipped, clipped = create_strategy(train(), task(), WorkerContext()), create_strategy(train(clip_norm=1), task(), WorkerContext())
    assert unclipped.step(rows(), 0, 1.0, NO_FLAGS, compute_grad_norm=False).grad_norm == -1
    assert clipped.step(rows(), 0, 1.0, NO_FLAGS, compute_grad_norm=False).grad_norm > 0


@pytest.mark.parametrize("compiled", [False, True])
def test_states_are_named_as_the_task_names_them(compiled: bool) -> None:
    strategy = create_strategy(train(compile=compiled, optimizer="adamw"), task(), WorkerContext())
    state, names = strategy.state_dict(), set(task().model().state_dict())
    assert set(state["model"]) == names
    assert set(state["optimizer"]["state"]) == names


@pytest.mark.skipif(not which("g++"), reason="torch compiles with g++: apt-get install g++")
def test_a_compiled_step_is_the_plain_one() -> None:
    plain, compiled = (create_strategy(train(compile=is_compiled), task(), WorkerContext()) for is_compiled in (False, True))
    sums = [numbers(strategy.step(rows(), 0, 0.1, NO_FLAGS)) for strategy in (plain, compiled)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-5)
    assert_same(dict(compiled.model.state_dict()), dict(plain.model.state_dict()), tolerance=1e-5)


def test_a_state_moves_to_another_strategy() -> None:
    settings = train(optimizer="adamw", lr=0.01)
    first, second = (
        create_strategy(settings, task(), WorkerContext()),
        create_strategy(train(optimizer="adamw", lr=0.01, seed=1), task(), WorkerContext()),
    )
    first.step(rows(), 0, 0.01, NO_FLAGS)
    second.load_state_dict(deepcopy(first.state_dict()))
    for strategy in (first, second):
        strategy.step(rows(), 1, 0.01, NO_FLAGS)
    assert_same(dict(second.model.state_dict()), dict(first.model.state_dict()), tolerance=0)


@pytest.mark.parametrize(("name", "kind"), [("sgd", SGD), ("adam", Adam), ("adamw", AdamW)])
@pytest.mark.parametrize("strategy_name", ["ddp", "exact"])
def test_steps_are_torch_s_also_after_the_state_has_been_asked_for(name: str, kind: type[Optimizer], strategy_name: str) -> None:
    """torch creates an optimizer's state by a step with zero gradients, if it is asked for before there is one."""
    options = {"lr": 0.01, "weight_decay": 0.1} | ({"momentum": 0.9} if kind is SGD else {})
    strategy = create_strategy(train(optimizer=name, strategy=strategy_name, shards=1, **options), task(), WorkerContext())
    state = strategy.state_dict()
    assert not any(values.any() for of in state["optimizer"]["state"].values() for values in of.values())
    plain = deepcopy(strategy.model)
    alone = kind(plain.parameters(), **options)
    for number in range(3):
        batch = rows() if strategy_name == "ddp" else [rows()]
        strategy.step(batch, number, 0.01, NO_FLAGS)
        total, weight = task().loss(plain, rows())
        alone.zero_grad()
        (total / weight).backward()
        alone.step()
        assert_same(dict(strategy.model.state_dict()), dict(plain.state_dict()))


def test_a_run_may_start_from_weights() -> None:
    weights = {name: values + 1 for name, values in task().model().state_dict().items()}
    assert_same(dict(create_strategy(train(), task(), WorkerContext(), lambda: weights).model.state_dict()), weights, tolerance=0)


def test_weights_of_another_model_are_refused() -> None:
    weights = {"layers.0.weight": torch.zeros(3, 3)}
    with pytest.raises(TrainingError, match=r"init_from is a1b2.*embeddings.0.weight, layers.0.bias, layers.0.weight.*same `task`"):
        create_strategy(train(init_from="a1b2"), task(), WorkerContext(), lambda: weights)


def test_dropout_depends_on_the_step_and_not_on_what_was_before() -> None:
    dropping = Tabular(Settings(hidden=(16,), dropout=0.5), Data(COLUMNS, ("a", "b", "c")))
    losses = []
    for numbers in ([0, 1, 2], [2], [1]):
        strategy = create_strategy(train(lr=1e-9), dropping, WorkerContext())
        losses.append([strategy.step(rows(), number, 1e-9, NO_FLAGS).loss_sum.item() for number in numbers])
    assert losses[0][2] == pytest.approx(losses[1][0], abs=1e-4)
    assert losses[0][1] == pytest.approx(losses[2][0], abs=1e-4)
    assert abs(losses[0][0] - losses[0][1]) > 1e-2

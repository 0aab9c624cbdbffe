"""`train.balance: auto`: faster workers compute more shards, and the model does not change."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from groups import run_group
from hypothesis import given
from hypothesis import strategies as st
from trainings import open_dataset, training

from pipelines.config import StrategySettings
from pipelines.config.train.base import BalanceSettings
from pipelines.config.train.train import Train
from pipelines.data.loader import shard_range
from pipelines.errors import ConfigError
from pipelines.launch.checks import check_training
from pipelines.runtime.weights import model_digest
from pipelines.tasks.bind import build_task
from pipelines.train import shard_balancer
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.shard_balancer import shard_counts
from pipelines.train.step_clock import StepClock, create_step_clock
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import Mesh, WorkerContext

SHARDS = 8
SECONDS_PER_ROW = {False: 0.001, True: 0.01}
"""Of workers that are slow, and of others."""


@given(st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 10)), min_size=1, max_size=4), st.integers(0, 5))
def test_no_other_deal_is_done_earlier(workers: list[tuple[float, float]], more: int) -> None:
    shards = len(workers) + more
    actual = shard_counts(*zip(*workers, strict=True), shards)
    assert sum(actual) == shards and min(actual) >= 1
    deals = (deal for deal in product(range(1, shards + 1), repeat=len(workers)) if sum(deal) == shards)
    assert slowest(actual, workers) == min(slowest(deal, workers) for deal in deals)


def slowest(counts: tuple[int, ...], workers: list[tuple[float, float]]) -> float:
    """Of workers with these seconds per shard, and in every step."""
    return max(fixed + count * seconds for count, (seconds, fixed) in zip(counts, workers, strict=True))


@given(st.integers(1, 6), st.integers(0, 10))
def test_equal_workers_share_equally(workers: int, more: int) -> None:
    shards = workers + more
    mesh = Mesh(WorkerContext(0, workers))
    dealt = Mesh(WorkerContext(0, workers), shard_counts=shard_counts([1.0] * workers, [0.1] * workers, shards))
    assert mesh.shards_by_replica(shards) == [shard_range(rank, workers, shards) for rank in range(workers)]
    assert sorted(map(len, dealt.shards_by_replica(shards))) == sorted(map(len, mesh.shards_by_replica(shards)))
    assert [shard for owned in dealt.shards_by_replica(shards) for shard in owned] == list(range(shards))


class Deals(Hooks):
    """Keeps what is logged about deals, and stops after some steps."""

    def __init__(self, stop_after: int | None) -> None:
        self.counts_by_step: list[tuple[int, list[float]]] = []
        self._steps_to_stop = stop_after

    def log(self, step: int, metrics: dict[str, float]) -> None:
        if counts := [value for name, value in metrics.items() if name.startswith("balance/")]:
            self.counts_by_step.append((step, counts))

    def must_stop_training(self) -> bool:
        if self._steps_to_stop is not None:
            self._steps_to_stop -= 1
        return self._steps_to_stop is not None and self._steps_to_stop < 0


def fit_and_digest(
    context: WorkerContext, home: Path, folder: Path, slow: dict[int, range] | None = None, stop_after: int | None = None, **train: Any
) -> tuple[Trained, list[tuple[int, list[float]]], str]:
    """The result, the deals and the model's digest; in the steps of `slow`, that worker's passes take ten times as long."""
    config = training(home, shards=SHARDS, **train)
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, context)
    PassClock(strategy, (slow or {}).get(context.rank, range(0)))
    hooks = Deals(stop_after)
    result = Loop(config, version, task, strategy, Checkpoints(RunDirectory(str(folder)), context, 2), hooks).run()
    return result, hooks.counts_by_step, model_digest(strategy.model.state_dict())


class PassClock:
    """Reads the seconds that passes take by their rows and by the test alone, so that nothing depends on what else the machine does."""

    def __init__(self, strategy: Strategy, slow_steps: range) -> None:
        self._now, self._step, self._slow_steps = 0.0, -1, slow_steps
        step = strategy.step

        def count_step(batch: Any, number: int, *arguments: Any, **named: Any) -> Any:
            self._step = number
            return step(batch, number, *arguments, **named)

        strategy.step = count_step  # type: ignore[method-assign]
        strategy.model.register_forward_pre_hook(self._compute)
        strategy.clock = StepClock(self)

    def __call__(self) -> float:
        return self._now

    def _compute(self, model: torch.nn.Module, inputs: Any) -> None:
        if model.training:
            self._now += SECONDS_PER_ROW[self._step in self._slow_steps] * len(inputs[0]["label"])


@pytest.mark.slow
def test_p5_exact_has_the_same_weights_however_often_shards_are_dealt_anew(tmp_path: Path, one_thread: None) -> None:
    """Worker 0 is slow first, then worker 2; the run is stopped amid a deal and goes on with two workers."""
    train = {"strategy": "exact", "balance": "auto", "workers": 2}
    fitted, deals, digest = fit_and_digest(WorkerContext(), tmp_path, tmp_path / "alone", **train)
    assert deals == []
    slow = {0: range(30), 2: range(30, 94)}
    group = run_group(3, tmp_path / "group", train_with_slow_workers, tmp_path, "three", slow, None, train)
    for actual, _, whole_digest in group:
        assert whole_digest == digest and (actual.rows, actual.metrics) == (fitted.rows, fitted.metrics)
    dealt = group[0][1]
    assert min(counts[0] for step, counts in dealt if step <= 30) == 1, dealt
    assert min(counts[2] for step, counts in dealt if step > 30) == 1, dealt
    stopped = run_group(3, tmp_path / "stopped", train_with_slow_workers, tmp_path, "resumed", slow, 20, train)
    assert not stopped[0][0].finished and stopped[0][1]
    for actual, _, whole_digest in run_group(2, tmp_path / "two", train_with_slow_workers, tmp_path, "resumed", slow, None, train):
        assert whole_digest == digest and (actual.rows, actual.metrics) == (fitted.rows, fitted.metrics)


def train_with_slow_workers(
    context: WorkerContext, home: Path, name: str, slow: dict[int, range], stop_after: int | None, train: dict[str, Any]
) -> Any:
    shard_balancer.EVERY_SECONDS = 0.0
    return fit_and_digest(context, home, home / name, slow, stop_after, **train)


@pytest.mark.slow
@pytest.mark.parametrize("in_memory", [True, False])
def test_ddp_trains_on_the_same_rows_and_the_slow_worker_gets_fewer(in_memory: bool, tmp_path: Path, one_thread: None) -> None:
    fitted, _, _ = fit_and_digest(WorkerContext(), tmp_path, tmp_path / "alone")
    group = run_group(2, tmp_path / "group", train_with_ddp, tmp_path, in_memory)
    for actual, dealt, _ in group:
        assert actual.rows == fitted.rows
        assert actual.metrics == pytest.approx(fitted.metrics, abs=0.02)
        assert all(sum(counts) == SHARDS for _, counts in dealt)
    assert group[0][1][-1][1][1] <= 2, group[0][1]
    assert group[0][2] == group[1][2]


def train_with_ddp(context: WorkerContext, home: Path, in_memory: bool) -> Any:
    shard_balancer.EVERY_SECONDS = 0.0
    if not in_memory:
        from pipelines.train import ddp

        ddp._all_reduce_in_memory = lambda *_: None  # as on two machines
    return fit_and_digest(context, home, home / f"two-{in_memory}", {1: range(1000)}, balance="auto", workers=2)


def test_a_strategy_that_cannot_is_refused_before_a_worker_starts(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rows": 200, "strategy": "test_dealing:UnbalancedSettings", "workers": 2, "shards": SHARDS}
    with pytest.raises(
        ConfigError, match=r"has no effect while train.strategy is test_dealing:\S+; set train.strategy to ddp or exact, or"
    ):
        training(tmp_path, **settings, balance="auto")
    config = training(tmp_path, **settings)
    recorded = config.model_copy(update={"train": config.train.model_copy(update={"balance": BalanceSettings(kind="auto")})})
    with pytest.raises(ConfigError, match=r"train.balance is auto, which strategy \S+ does not support; set it to equal"):
        check_training(recorded, open_dataset(config))


class UnbalancedSettings(StrategySettings):
    implementation = "test_dealing:Unbalanced"


class Unbalanced(Strategy):
    """Inherits everything, and so cannot own other shards."""


@pytest.mark.parametrize("resumed_at", [0, 10_000])
def test_speeds_are_compared_every_few_seconds_also_after_a_resume(resumed_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At two steps a second, that is ten steps."""
    now = 100.0
    monkeypatch.setattr(shard_balancer.time, "monotonic", lambda: now)
    strategy: Any = SimpleNamespace(mesh=Mesh(WorkerContext()), clock=create_step_clock(torch.device("cpu")))
    dealer = shard_balancer.ShardBalancer(strategy, Train(balance="auto"), Hooks())
    now += 60  # until the first batch is there
    compared = []
    for step in range(1, 50):
        now += 0.5
        before = dealer._compared_at
        dealer.deal(resumed_at + step)
        compared += [step] if before != dealer._compared_at == now else []
    assert compared == [1, 9, 19, 29, 39, 49]


def test_the_setting_is_equal_by_default() -> None:
    assert Train().balance.kind == "equal"
    assert Train(balance="auto").balance == BalanceSettings(kind="auto")


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize(("machines", "left_out"), [("abc", ("c",)), ("acc", ())])
def test_a_machine_whose_worker_stays_slow_is_left_out_if_enough_workers_remain(
    machines: str, left_out: tuple[str, ...], tmp_path: Path, one_thread: None
) -> None:
    for actual, _, _ in run_group(3, tmp_path / "group", train_on_machines, tmp_path, machines):
        assert actual.left_out == left_out and actual.finished == (not left_out)
        assert actual.steps < 60 or not left_out


def train_on_machines(context: WorkerContext, home: Path, machines: str) -> Any:
    """The last of three workers is slow, and two must remain."""
    shard_balancer.EVERY_SECONDS = 0.0
    train = {"workers": [2, 3], "balance": {"leave_out": True}, "max_steps": 60}
    return fit_and_digest(replace(context, machine=machines[context.rank]), home, home / "run", {2: range(1000)}, **train)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"balance": {"leave_out": True}, "workers": 2},
            r"balance.leave_out is true, but workers is 2, a fixed number; set workers to .*1, 2",
        ),
        ({"balance": {"leave_out": True, "kind": "equal"}, "workers": [1, 2]}, "leave_out is true, but kind is equal"),
        ({"balance": "fair"}, "balance"),
    ],
)
def test_what_cannot_be_balanced_is_refused_with_the_config(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        training(tmp_path, rows=200, **settings)

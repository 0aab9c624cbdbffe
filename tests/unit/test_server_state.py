"""Parameter servers without Ray: parts, watermarks, what is applied exactly once, and the sums of strategy `exact`."""

import pickle
import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest
import torch
from groups import run_group
from hypothesis import given, settings
from hypothesis import strategies as st
from test_exact import Network, Squares
from torch import nn
from versions import write_version

from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.errors import ConfigError, NonFiniteError, TrainingError
from pipelines.runtime.weights import digests
from pipelines.strategies.parameter_server.messages import BLOCK, SUMS_OF_STEP, Plan, Push, blocks, divide_parameters
from pipelines.strategies.parameter_server.parameter_server import ParameterServerStrategy
from pipelines.strategies.parameter_server.server import Server
from pipelines.strategies.parameter_server.server_actors import ServerActor, Servers
from pipelines.strategies.parameter_server.watermarks import Watermarks
from pipelines.strategies.parameter_server.worker_loop import Streams, WorkerLoop
from pipelines.tasks.base import Batch
from pipelines.train.exact.exact import Exact
from pipelines.train.learning_rate import learning_rate
from pipelines.train.step_statistics import Flags
from pipelines.train.workers import WorkerContext

SHARDS, STEPS = 4, 6


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=20).filter(any), st.data())
def test_every_entry_is_in_one_part(sizes: list[int], data: st.DataObject) -> None:
    servers = data.draw(st.integers(1, min(blocks(sizes), 9)))
    actual = divide_parameters(sizes, servers)
    for number, size in enumerate(sizes):
        pieces = [piece for part in actual for piece in part if piece.number == number]
        assert [piece.start for piece in pieces] + [size] == [0] * bool(pieces) + [piece.stop for piece in pieces] or not size
        assert all(piece.start % BLOCK == 0 for piece in pieces)
    block_counts = [sum(-(-piece.size // BLOCK) for piece in part) for part in actual]
    assert len(block_counts) == servers and min(block_counts) >= 1
    assert max(block_counts) <= 1.1 * blocks(sizes) / servers + 1


def test_a_cut_near_the_end_of_a_parameter_splits_none() -> None:
    assert [[piece.number for piece in part] for part in divide_parameters([4000, 2000, 4000], 2)] == [[0, 1], [1, 2]]
    assert [[piece.number for piece in part] for part in divide_parameters([4800, 200, 5000], 2)] == [[0, 1], [2]]
    assert [[(piece.start, piece.stop) for piece in part] for part in divide_parameters([200], 2)] == [[(0, 128)], [(128, 200)]]


def make_settings(mode: str = "sync", servers: int = 3, staleness: int = 2, **changes: Any) -> Train:
    strategy = {"servers": servers, "mode": mode, **({"staleness": staleness} if mode == "bounded" else {})}
    values = {"strategy": {"kind": "parameter_server", **strategy}, "shards": SHARDS, "global_batch": 4 * SHARDS, **changes}
    return Train.model_validate({"schedule": "cosine", **values})


def worker(train: Train, kind: type[Exact] = ParameterServerStrategy) -> Any:
    torch.manual_seed(0)
    return kind(train, Squares(), Network, WorkerContext())  # type: ignore[arg-type]


def make_plan(train: Train, served: ParameterServerStrategy) -> Plan:
    return Plan(train, STEPS, STEPS, 2, served.layouts)


def microbatch(shard: int, step: int, rows: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(100 * step + shard)
    x = torch.randn(rows, 5, generator=generator)
    return {"x": x, "code": torch.arange(rows) % 10, "label": x.sum(1)}


def start_servers(served: ParameterServerStrategy, plan: Plan) -> list[Server]:
    """Servers with the worker's parameters, before the first step."""
    served.next_steps, served._sums = [0] * SHARDS, [0.0] * SUMS_OF_STEP
    return [Server(deepcopy(contents)) for contents in served.contents("run", plan)]


def pull_parameters(served: ParameterServerStrategy, servers: Sequence[Server]) -> list[int]:
    """Take the servers' parameters; returns their versions."""
    answers = [server.current(None) for server in servers]
    served.take(answers)
    return [answer.version for answer in answers]


def state_digests(served: ParameterServerStrategy, servers: Sequence[Server]) -> dict[str, str]:
    """Digests of model and optimizer, as a checkpoint has them."""
    served.collect([deepcopy(server.contents()) for server in servers])
    return {name: digest for name, digest in digests(served.state_dict()).items() if not name.startswith("servers.")}


CASES: dict[str, dict[str, Any]] = {
    "adamw, clipped": {"clip_norm": 0.5},
    "sgd, accumulated": {"optimizer": "sgd", "grad_accum_steps": 2},
    "one server": {"servers": 1, "optimizer": "adam", "clip_norm": 0.5},
    "bf16, as many servers as can be": {"precision": "bf16", "servers": 8, "clip_norm": 0.5},
}


@pytest.mark.parametrize("case", CASES)
def test_sync_is_exact_bit_for_bit(case: str) -> None:
    """Model, buffers and optimizer after every step, in any order of arrival; shard 1 has no rows in the last step."""
    train = make_settings(**CASES[case])
    exact, served, chance = worker(train, Exact), worker(train), random.Random(case)
    exact.state_dict(), served.state_dict()  # as a loop's start makes the optimizer's state
    plan = make_plan(train, served)
    servers = start_servers(served, plan)
    for step in range(STEPS):
        batch = [microbatch(shard, step, 0 if (step, shard) == (STEPS - 1, 1) else 4) for shard in range(SHARDS)]
        result = exact.step(batch, step, learning_rate(train, step, STEPS, STEPS), Flags(), compute_grad_norm=plan.needs_norm(step))
        versions = pull_parameters(served, servers)
        updates = [served.updates(batch[shard], shard, step, versions, plan) for shard in chance.sample(range(SHARDS), SHARDS)]
        for number, server in enumerate(servers):
            for update in chance.sample(updates, SHARDS):
                assert server.ready(step) is None
                server.push(update[number])
        norm = served.norm([server.ready(step) for server in servers], plan)
        assert norm == float(result.grad_norm)
        for server in servers:
            server.advance(step, norm)
        assert state_digests(served, servers) == digests(exact.state_dict())
        (sums,) = servers[0].steps_after(step)
        assert (sums.number, sums.grad_norm, sums.loss_sum) == (step + 1, norm, float(result.loss_sum))
        assert (sums.weight, sums.rows) == (float(result.weight), float(result.rows))


def test_a_parameter_whose_memory_is_not_in_its_shape_s_order_is_exact_too() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(40, 5).t())

        def forward(self, batch: Batch) -> torch.Tensor:
            return (batch["x"] @ self.weight).square().sum(1)

    train = make_settings(clip_norm=0.5)
    torch.manual_seed(0)
    first = Turned()
    exact, served = (kind(train, Squares(), lambda: deepcopy(first), WorkerContext()) for kind in (Exact, ParameterServerStrategy))  # type: ignore[arg-type]
    assert not exact.model.weight.is_contiguous()
    exact.state_dict(), served.state_dict()
    plan = make_plan(train, served)
    servers = start_servers(served, plan)
    batch = [microbatch(shard, 0) for shard in range(SHARDS)]
    exact.step(batch, 0, learning_rate(train, 0, STEPS, STEPS), Flags())
    versions = pull_parameters(served, servers)
    for shard in range(SHARDS):
        for server, update in zip(servers, served.updates(batch[shard], shard, 0, versions, plan), strict=True):
            server.push(update)
    norm = served.norm([server.ready(0) for server in servers], plan)
    for server in servers:
        server.advance(0, norm)
    assert state_digests(served, servers) == digests(exact.state_dict())


def compute_updates(train: Train, plan: Plan, served: ParameterServerStrategy) -> dict[tuple[int, int], Push]:
    """An update of the only server for every (shard, step), all from the first parameters."""
    every = [(shard, step) for step in range(STEPS) for shard in range(SHARDS)]
    return {(shard, step): served.updates(microbatch(shard, step), shard, step, [0], plan)[0] for shard, step in every}


@pytest.fixture(scope="module")
def asynchronous() -> tuple[ParameterServerStrategy, Plan, dict[tuple[int, int], Push]]:
    train = make_settings("async", 1, clip_norm=0.5)
    served = worker(train)
    plan = make_plan(train, served)
    return served, plan, compute_updates(train, plan, served)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_update_is_applied_once_whatever_is_sent_again_and_whoever_dies(
    asynchronous: tuple[ParameterServerStrategy, Plan, dict[tuple[int, int], Push]], data: st.DataObject
) -> None:
    """Updates arrive in any order, and again at any later time; the server may die after any command, before or after its backup has
    it, and then continues as its backup."""
    served, plan, updates = asynchronous
    reference, (server,), (backup,) = start_servers(served, plan)[0], start_servers(served, plan), start_servers(served, plan)
    order = data.draw(st.permutations(list(updates)))
    for number, (shard, step) in enumerate(order):
        fault = data.draw(st.sampled_from(["none", "again", "dies before", "dies after", "backup dies"]))
        update = updates[shard, step]
        reference.push(update)
        server.push(update)
        if fault != "dies before":
            backup.push(update)
        if fault.startswith("dies"):
            server = Server(pickle.loads(pickle.dumps(backup.contents())))
            server.push(update)  # it was not acknowledged, so it is sent again
            if fault == "dies before":
                backup.push(update)
        if fault == "backup dies":
            backup = Server(pickle.loads(pickle.dumps(server.contents())))
        if fault == "again":
            server.push(updates[order[data.draw(st.integers(0, number))]])
        assert server.watermarks == backup.watermarks and server.version == number + 1
        assert all(server.watermarks.has(*key) == (key in order[: number + 1]) for key in updates)
    assert server.watermarks == Watermarks([STEPS] * SHARDS)
    assert server.sequence == backup.sequence == reference.sequence == SHARDS * STEPS
    assert state_digests(served, [server]) == state_digests(served, [backup]) == state_digests(served, [reference])
    assert server.steps_after(0) == reference.steps_after(0)
    assert [sums.number for sums in server.steps_after(0)] == list(range(1, STEPS + 1))


def test_a_synchronous_step_survives_the_server_at_any_command() -> None:
    train = make_settings(servers=1, clip_norm=0.5)
    served = worker(train)
    plan = make_plan(train, served)
    (server,) = start_servers(served, plan)
    results = []
    for dies_at in range(-1, SHARDS + 1):
        server = start_servers(served, plan)[0]
        for shard in range(SHARDS):
            server.push(served.updates(microbatch(shard, 0), shard, 0, [0], plan)[0])
            if shard == dies_at:
                server = Server(pickle.loads(pickle.dumps(server.contents())))
        norm = served.norm([server.ready(0)], plan)  # type: ignore[list-item]
        server.advance(0, norm)
        if dies_at == SHARDS:
            server = Server(pickle.loads(pickle.dumps(server.contents())))
            assert served.norm([server.ready(0)], plan) == norm, "another worker may have to ask again"  # type: ignore[list-item]
            server.advance(0, norm)
        results.append(digests({"values": server.contents().values}))
    assert all(other == results[0] for other in results)


def test_a_synchronous_update_that_comes_too_early_is_refused() -> None:
    train = make_settings("sync", 1)
    served = worker(train)
    plan = make_plan(train, served)
    (server,) = start_servers(served, plan)
    with pytest.raises(TrainingError, match="shard 2 sent step 1, but its next one is 0: an update is missing"):
        server.push(served.updates(microbatch(2, 1), 2, 1, [0], plan)[0])


class Handle:
    """A server's actor in this process, which tells when it is asked for the first time."""

    def __init__(self, actor: ServerActor, was_asked: Event) -> None:
        self._actor, self._was_asked = actor, was_asked

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            answer = getattr(self._actor, name)(*arguments)
            self._was_asked.set()
            return answer

        return SimpleNamespace(remote=call)


def test_workers_that_send_nothing_are_named_and_a_longer_timeout_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.strategies.parameter_server.server_actors.ray.get", list)
    monkeypatch.setattr("pipelines.strategies.parameter_server.server_actors.PATIENCE_SECONDS", 0.05)
    train = make_settings("sync", 1)
    served, was_asked, actor = worker(train), Event(), ServerActor("")
    plan = make_plan(train, served)
    (server,) = start_servers(served, plan)
    actor.load(server.contents())
    impatient, patient = (Servers([Handle(actor, was_asked)], seconds) for seconds in (0.1, 200.0))  # type: ignore[list-item]
    impatient.run = patient.run = "run"
    with pytest.raises(TrainingError, match=r"shards \[0, 1, 2, 3\] are the last, at step 0: check their workers, or raise train.timeout_"):
        impatient.ready(0)
    was_asked.clear()

    def compute() -> None:
        """Microbatches that take longer than the servers' patience."""
        assert was_asked.wait(100)
        for shard in range(SHARDS):
            actor.command("run", Server.push, served.updates(microbatch(shard, 0), shard, 0, pull_parameters(served, [server]), plan)[0])

    workers = Thread(target=compute)
    workers.start()
    assert len(patient.ready(0)) == 1
    workers.join()


@given(st.integers(0, 3), st.permutations([(shard, step) for shard in range(SHARDS) for step in range(STEPS)]))
@settings(max_examples=20, deadline=None)
def test_parameters_have_all_updates_but_those_of_the_newest_steps(
    asynchronous: tuple[ParameterServerStrategy, Plan, dict[tuple[int, int], Push]], staleness: int, order: list[tuple[int, int]]
) -> None:
    served, plan, updates = asynchronous
    (server,) = start_servers(served, replace(plan, settings=settings_with_staleness(staleness)))
    while missing := [update for update in order if not server.watermarks.has(*update)]:
        allowed = [(shard, step) for shard, step in missing if server.pull(step, None) is not None]
        for shard, step in missing:
            has_all = all(server.watermarks.has(other, before) for other in range(SHARDS) for before in range(step - staleness))
            assert ((shard, step) in allowed) == has_all
        server.push(updates[allowed[0]])


def settings_with_staleness(staleness: int) -> Train:
    return make_settings("bounded", staleness=staleness)


def test_a_halt_lets_a_synchronous_step_end_and_an_asynchronous_one_begin_no_more() -> None:
    train = make_settings("sync", 1)
    served = worker(train)
    plan = make_plan(train, served)
    (server,) = start_servers(served, plan)
    server.halt()
    answer = server.pull(0, None)
    assert answer is not None and not answer.is_halted
    for shard in range(SHARDS):
        server.push(served.updates(microbatch(shard, 0), shard, 0, [0], plan)[0])
    assert server.may_begin(STEPS) is None
    server.advance(0, -1.0)
    answer = server.pull(1, None)
    assert answer is not None and answer.is_halted and server.may_begin(STEPS) is False
    server.resume(1)
    answer = server.pull(1, None)
    assert answer is not None and not answer.is_halted and server.steps_after(0) == []


def test_a_halt_of_an_asynchronous_server_lets_only_gaps_be_filled(
    asynchronous: tuple[ParameterServerStrategy, Plan, dict[tuple[int, int], Push]],
) -> None:
    served, plan, updates = asynchronous
    (server,) = start_servers(served, plan)
    for shard, step in ((0, 0), (2, 0), (2, 2)):
        server.push(updates[shard, step])
    assert server.limits(STEPS) == [STEPS] * SHARDS
    server.halt()
    assert server.limits(STEPS) == [1, 0, 3, 0]
    server.resume(0)
    assert server.limits(STEPS) == [STEPS] * SHARDS


def test_a_number_that_is_not_finite_reaches_every_worker() -> None:
    train = make_settings("async", 1)
    served = worker(train)
    plan = make_plan(train, served)
    (server,) = start_servers(served, plan)
    rows = {**microbatch(2, 0), "label": torch.full((4,), torch.nan)}
    with pytest.raises(NonFiniteError, match=r"step 1: the loss is nan, from worker 0 \(shard 2\): the last complete checkpoint is kept"):
        served.updates(rows, 2, 0, [0], plan)
    server.fail("step 1: the loss is nan")
    for ask in (lambda: server.pull(0, None), lambda: server.ready(0), lambda: server.may_begin(1), lambda: server.limits(1)):
        with pytest.raises(NonFiniteError, match="step 1: the loss is nan"):
            ask()


def complete_updates(context: WorkerContext) -> None:
    def fail(shard: int, step: int) -> None:
        raise NonFiniteError(f"step {step}: the loss is nan, of shard {shard}")

    progress = object.__new__(WorkerLoop)
    progress._is_first_rank, progress._servers = context.rank == 0, cast(Any, SimpleNamespace(incomplete=lambda: [(3, 7)]))
    with patch.multiple(progress, _pull=lambda step: True, _compute=fail):
        progress._complete()


def test_a_number_that_is_not_finite_in_an_update_of_a_dead_worker_reaches_every_worker(tmp_path: Path) -> None:
    for error in run_group(2, tmp_path, complete_updates):
        assert isinstance(error, NonFiniteError) and str(error) == "step 7: the loss is nan, of shard 3", error


def test_asynchronous_buffers_move_by_each_shard_s_share() -> None:
    """After one microbatch of every shard a batch norm has counted one step."""
    train = make_settings("async", 2)
    served = worker(train)
    plan = make_plan(train, served)
    servers = start_servers(served, plan)
    batch_norm = served.model.layers[1]
    for shard in range(SHARDS):
        assert int(batch_norm.num_batches_tracked) == 0
        for server, update in zip(servers, served.updates(microbatch(shard, 0), shard, 0, [0, 0], plan), strict=True):
            server.push(update)
        pull_parameters(served, servers)
    assert int(batch_norm.num_batches_tracked) == 1
    assert 0.0 < float((batch_norm.running_var - 0.9).abs().max()) < 0.2


def test_what_integer_buffers_have_not_moved_by_yet_is_in_a_checkpoint() -> None:
    """The run is saved and resumed after every microbatch; in the end the batch norm has counted a step."""
    train = make_settings("async", 2)
    served = worker(train)
    served.state_dict()  # as a loop's start makes the optimizer's state
    plan = make_plan(train, served)
    servers = start_servers(served, plan)
    for shard in range(SHARDS):
        for server, update in zip(servers, served.updates(microbatch(shard, 0), shard, 0, [0, 0], plan), strict=True):
            server.push(update)
        pull_parameters(served, servers)
        served.collect([deepcopy(server.contents()) for server in servers])
        saved, served = deepcopy(served.state_dict()), worker(train)
        served.load_state_dict(saved)
        servers = [Server(contents) for contents in served.contents(f"run {shard}", plan)]
    assert int(served.model.layers[1].num_batches_tracked) == 1


@pytest.mark.parametrize(("remainder", "owned"), [("drop", range(SHARDS)), ("keep", range(SHARDS)), ("keep", range(1, 2))])
def test_each_shard_reads_its_rows_at_any_step_whoever_owns_it(tmp_path: Path, remainder: Any, owned: range) -> None:
    numbers = np.arange(103, dtype=np.float32)
    version = write_version(tmp_path / "version", {"train": [{"x": numbers, "label": numbers}]})
    order = Order(SHARDS, 16, seed=3, remainder=remainder)
    loader = Loader(version, "train", order)
    expected = [[part["x"].tolist() for part in loader.split_by_shard(batch)] for _ in range(2) for batch in loader]
    streams = Streams(version, "train", order, owned, prefetch_bytes=2**20)
    requests = [(step, 2) for step in range(len(expected))] + [(5, 0), (6, 0), (loader.steps_per_epoch, 1), (0, 1), (1, 1), (5, 3)]
    requests += [(step, shard) for step in range(0, 4, 3) for shard in range(SHARDS)] + [(loader.steps_per_epoch + 1, 0), (2, 1)]
    for step, shard in requests:
        assert streams.take(shard, step)["x"].tolist() == expected[step][shard], (step, shard)
    streams.close()


def test_more_servers_than_parameters_are_rejected() -> None:
    class Task:
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(100, 1), nn.Embedding(1, 1).requires_grad_(False))

    ParameterServerStrategy.check(make_settings(servers=3), Task(), None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="servers is 4, but the model's parameters can only be divided among 3; lower it"):
        ParameterServerStrategy.check(make_settings(servers=4), Task(), None)  # type: ignore[arg-type]


def test_parameters_that_servers_do_not_hold_are_refused_before_they_start() -> None:
    class Task:
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(100, 1), nn.Linear(1, 1, dtype=torch.float64))

    with pytest.raises(ConfigError, match=r"1.weight is torch.float64, but strategy parameter_server holds float32; set train.strategy to"):
        ParameterServerStrategy.check(make_settings(servers=1), Task(), None)  # type: ignore[arg-type]


def test_batch_norm_with_asynchronous_updates_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Task:
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(200, 3), nn.BatchNorm1d(3))

    ParameterServerStrategy.check(make_settings("sync"), Task(), None)  # type: ignore[arg-type]
    assert caplog.text == ""
    ParameterServerStrategy.check(make_settings("async"), Task(), None)  # type: ignore[arg-type]
    assert "batch norm with mode async" in caplog.text

"""Degree `tensor`: workers that compute each layer together train as `ddp` does on one, in any combination with the other degrees."""

from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from layouts import SETTINGS, Fitted, fit_layout, gpt, gpt_settings, losses, steps
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from trainings import training

from pipelines.applications.language.network import GPT
from pipelines.applications.language.task import Language
from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.strategies.sharded.pipelined import Pipelined
from pipelines.strategies.sharded.sharded import Sharded
from pipelines.strategies.sharded.tensor_and_context import check_degrees, check_divisible, divide
from pipelines.tasks.linear_cross_entropy import Head
from pipelines.tasks.model_parallel import LayerPlan
from pipelines.train.checkpoint.checkpoint_record import read_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

# Adam would magnify rounding: a bias before a batch norm has no other gradient.
NORMED: dict[str, Any] = {"task": {"batch_norm": True, "dropout": 0.2}, "remainder": "drop", "epochs": 1, "optimizer": "sgd"}
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {"epochs": 1},
    "moved": {},
    "normed": NORMED,
    "members": {"task": {"members": 4}, "epochs": 1},
    "embedded": {"task": {"number_embedding": {"kind": "piecewise"}}, "epochs": 1},
}
LAYOUTS: dict[str, tuple[int, dict[str, Any], str]] = {
    "tensor": (2, {"tensor": 2}, "plain"),
    "tensor, with batch norm and dropout": (2, {"tensor": 2}, "normed"),
    "tensor, with members": (2, {"tensor": 2}, "members"),
    "shard, with members": (2, {"shard": 2}, "members"),
    "pipeline, with members": (2, {"pipeline": 2}, "members"),
    "shard, with embedded numbers": (2, {"shard": 2}, "embedded"),
    "pipeline, with embedded numbers": (2, {"pipeline": 2}, "embedded"),
    "tensor and shard": (4, {"tensor": 2, "shard": 2, "reduce_every_pass": True}, "plain"),
    "tensor and replicate": (4, {"tensor": "auto", "shard": 1, "replicate": 2}, "plain"),
    "tensor and pipeline": (4, {"tensor": 2, "pipeline": 2}, "plain"),
    "pipeline and shard": (4, {"pipeline": 2, "shard": 2}, "plain"),
    "tensor, pipeline and shard": (8, {"tensor": 2, "pipeline": 2, "shard": 2}, "plain"),
}
"""Workers, degrees, and which of CHANGES."""
MOVED: list[tuple[int, dict[str, Any], int | None]] = [(4, {"tensor": 2}, 6), (2, {"shard": 2}, 20), (2, {"tensor": 2}, None)]
"""Workers, degrees, and steps after which each part of one run stops: within the first epoch, within the second, and at the end."""
GPTS: dict[str, tuple[int, dict[str, Any], float]] = {
    "plain": (2, {}, 0.0),
    "dropout": (2, {}, 0.2),
    "accumulated": (2, {"grad_accum_steps": 2, "strategy": {"kind": "sharded", "tensor": 2, "activation_checkpointing": "selective"}}, 0.0),
    "recomputed, with dropout": (2, {"strategy": {"kind": "sharded", "tensor": 2, "activation_checkpointing": "full"}}, 0.2),
    "bf16": (2, {"precision": "bf16"}, 0.0),
    "tensor and shard": (4, {}, 0.0),
    "tensor and replicate": (4, {"strategy": {"kind": "sharded", "tensor": 2, "replicate": 2}}, 0.0),
    "tensor and pipeline": (4, {"grad_accum_steps": 2, "strategy": {"kind": "sharded", "tensor": 2, "pipeline": 2}}, 0.0),
    "tensor, pipeline and shard": (
        8,
        {"grad_accum_steps": 2, "strategy": {"kind": "sharded", "tensor": 2, "pipeline": 2, "shard": 2}},
        0.0,
    ),
}
"""Workers, settings, and dropout."""


def fit_in_turn(context: WorkerContext, home: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, (workers, parallel, changes) in LAYOUTS.items():
        if workers == context.world_size:
            results[name] = fit_layout(context, home, home / name, {**CHANGES[changes], "strategy": {"kind": "sharded", **parallel}})
    for workers, parallel, stop_after in MOVED:
        if workers == context.world_size:
            results["moved"] = fit_layout(context, home, home / "moved", {"strategy": {"kind": "sharded", **parallel}}, stop_after)
    for name, (workers, changes, dropout) in GPTS.items():
        if workers == context.world_size:
            results[f"gpt, {name}"] = steps(
                context, gpt_settings(context, **{"strategy": {"kind": "sharded", "tensor": 2}, **changes}), dropout
            )
    return results


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("divided")
    training(folder, **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def alone(home: Path) -> dict[str, Fitted]:
    """A training by `ddp` on one worker."""
    return {
        name: fit_layout(WorkerContext(), home, home / f"alone-{name}", {"strategy": "ddp", **changes}) for name, changes in CHANGES.items()
    }


@pytest.fixture(scope="module")
def groups(home: Path) -> dict[str, list[Any]]:
    """Trainings of each worker, by name; of the smaller group if two have trained a layout."""
    results: dict[str, list[Any]] = {}
    for workers in (8, 4, 2):
        answers = run_group(workers, home / f"group-{workers}", fit_in_turn, home)
        assert not (failed := [repr(answer) for answer in answers if isinstance(answer, Exception)]), failed
        results |= {name: [answer[name] for answer in answers] for name in answers[0]}
    return results


@pytest.mark.full
@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_metrics_and_weights_are_those_of_ddp_on_one_worker(
    home: Path, alone: dict[str, Fitted], groups: dict[str, list[Any]], layout: str
) -> None:
    (trained, before, weights), *other_answers = groups[layout]
    changes = LAYOUTS[layout][2]
    expected, wanted_before, wanted_weights = alone[changes]
    assert before.keys() == wanted_before.keys()
    assert all(torch.equal(before[name], values) for name, values in wanted_before.items())
    assert losses(home / layout) == pytest.approx(losses(home / f"alone-{changes}"), rel=1e-5)
    assert (trained.rows, trained.steps) == (expected.rows, expected.steps)
    assert trained.metrics == pytest.approx(expected.metrics, rel=1e-5)
    torch.testing.assert_close(weights, wanted_weights, rtol=1e-4, atol=1e-6)
    assert all(actual[0].metrics == trained.metrics and actual[2] == {} for actual in other_answers)


@pytest.mark.full
def test_a_run_goes_on_in_any_layout(home: Path, alone: dict[str, Fitted], groups: dict[str, list[Any]]) -> None:
    trained, _, weights = groups["moved"][0]
    assert trained.finished and losses(home / "moved") == pytest.approx(losses(home / "alone-moved"), rel=1e-5)
    torch.testing.assert_close(weights, alone["moved"][2], rtol=1e-4, atol=1e-6)


@pytest.mark.full
def test_a_layer_s_parts_are_of_columns_and_of_rows(home: Path, groups: dict[str, list[Any]]) -> None:
    digests = read_digest_log(RunDirectory(str(home / "tensor and shard"))).digests[16]
    parts = {name.partition("[")[2] for name in digests if name.startswith("model.layers.0.weight")}
    assert parts == {"0:8,0:8]", "8:16,0:8]", "16:24,0:8]", "24:32,0:8]"}
    parts = {name.partition("[")[2] for name in digests if name.startswith("optimizer.state.layers.2.weight.exp_avg[")}
    assert parts == {"0:16,0:16]", "16:32,0:16]", "0:16,16:32]", "16:32,16:32]"}


@pytest.mark.full
@pytest.mark.parametrize("name", GPTS)
def test_a_gpt_trains_predicts_and_writes_as_with_ddp_on_one_worker(groups: dict[str, list[Any]], name: str) -> None:
    _, changes, dropout = GPTS[name]
    settings = gpt_settings(WorkerContext(), **{**changes, "strategy": "ddp"})
    expected, output, text = steps(WorkerContext(), settings, dropout)
    actual = groups[f"gpt, {name}"]
    narrow = settings.precision != "auto"
    assert all(answer[0] == actual[0][0] for answer in actual)
    assert actual[0][0] == pytest.approx(expected, rel=0.02 if narrow else 1e-4) and expected[-1] < expected[0] - (0 if dropout else 1)
    assert torch.equal(actual[0][1], actual[1][1]), "workers that compute the same rows together"
    outputs = torch.cat([answer[1] for answer in actual[:: 4 if "pipeline" in name else 2]])
    torch.testing.assert_close(outputs, output, rtol=0.05 if narrow else 1e-3, atol=0.05 if narrow else 1e-3)
    assert narrow or actual[0][2] == text
    assert all(answer[2] == "" for answer in actual[1:])


@pytest.mark.parametrize(
    ("degree", "message"),
    [
        (3, "tensor is 3, but network.blocks.0.attention.qkv has 2 heads, which it does not divide; set it to one of 1, 2, or change"),
        (4, "tensor is 4, but network.blocks.0.attention.qkv has 2 heads"),
    ],
)
def test_what_heads_do_not_allow_is_said_before_a_worker_starts(degree: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sharded.check(gpt_settings(WorkerContext(world_size=degree), strategy={"kind": "sharded", "tensor": degree}), gpt(), None)  # type: ignore[arg-type]


def test_a_vocabulary_that_leaves_a_worker_without_tokens_is_refused_before_a_worker_starts() -> None:
    """Of five tokens torch would give four workers 2, 2, 1 and 0."""
    layers = ((nn.Embedding(5, 8), LayerPlan("rows"), "vectors"), (Head(8, 5), LayerPlan("logits"), "classes"))
    for layer, split, divided in layers:
        model, plan = nn.Sequential(layer), {"0": split}
        check_divisible(model, plan, 3)
        with pytest.raises(ConfigError, match=f"tensor is 4, but 0 divides 5 {divided}, so that a worker .*; lower it, such as to 3"):
            check_divisible(model, plan, 4)


def divide_head(context: WorkerContext) -> tuple[str, float]:
    """The error of a loss of the logits, and how far the cross entropy is from that of a whole head."""
    torch.manual_seed(0)
    head, hidden, targets = nn.ModuleDict({"head": Head(8, 5)}), torch.randn(7, 8, requires_grad=True), torch.arange(7) % 5
    expected = torch.nn.functional.cross_entropy(head["head"](hidden), targets, reduction="none").detach()
    divide(head, {"head": LayerPlan("logits")}, init_device_mesh("cpu", (context.world_size,)))
    with pytest.raises(ConfigError) as caught:
        head["head"](hidden)
    nats = head["head"](hidden, targets)
    nats.sum().backward()
    return str(caught.value), float((nats - expected).abs().max())


def test_a_loss_of_divided_logits_is_refused_and_their_cross_entropy_is_not(tmp_path: Path) -> None:
    """Five classes on two workers, of which one has three."""
    for message, difference in run_group(2, tmp_path, divide_head):
        assert "give the head the targets, which returns their cross entropy" in message
        assert difference < 1e-6


class Ties(Language):
    """A model whose head is its embedding."""

    def model(self) -> nn.Module:
        model = super().model()
        network = model.get_submodule("network")
        assert isinstance(network, GPT)
        network.head.weight = network.embedding.weight
        return model


class Undivided(Language):
    def model(self) -> nn.Module:
        return nn.Linear(2, 2)


class Misnamed(Language):
    def parallel_plan(self, model: nn.Module) -> dict[str, LayerPlan]:
        return {"network.blocks.*.perceptron": LayerPlan("columns")}


class Misplaced(Language):
    def parallel_plan(self, model: nn.Module) -> dict[str, LayerPlan]:
        return {"network.dropout": LayerPlan("columns")}


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (Undivided, {}, "tensor is 2, but task Undivided supports only replicate, shard; set tensor to 1"),
        (Misnamed, {}, r"divides network.blocks.\*.perceptron, but its model has no such module; correct the plan"),
        (Misplaced, {}, "divides network.dropout, a Dropout, by columns; it can divide only Linear and Embedding"),
        (Ties, {}, "tensor is 2, but network.head.weight is network.embedding.weight, and layers that workers divide cannot share"),
        (Language, {"compile": True}, "tensor is 2, but train.compile is true, .*; set it to false"),
        (Language, {"precision": "fp16"}, "tensor is 2, but train.precision is fp16, whose loss scale .*; set it to bf16 or fp32"),
    ],
)
def test_what_a_plan_or_a_setting_does_not_allow(kind: type[Language], changes: dict[str, Any], message: str) -> None:
    task = kind(gpt().settings, gpt().data)
    with pytest.raises(ConfigError, match=message):
        check_degrees(gpt_settings(WorkerContext(world_size=2), strategy={"kind": "sharded", "tensor": 2}, **changes), task, task.model())


def test_a_model_of_a_task_of_one_s_own_can_be_spread_but_not_divided_or_cut() -> None:
    task = Undivided(gpt().settings, gpt().data)
    Sharded.check(gpt_settings(WorkerContext(world_size=2)), task, None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pipeline is 2, but task Undivided supports only replicate, shard; set pipeline to 1"):
        Pipelined.check(gpt_settings(WorkerContext(world_size=2), strategy={"kind": "sharded", "pipeline": 2}), task, None)  # type: ignore[arg-type]


def test_batch_norm_of_all_rows_would_count_some_twice() -> None:
    settings = {"workers": 4, "strategy": {"kind": "sharded", "tensor": 2}, "sync_batch_norm": True}
    with pytest.raises(ConfigError, match=r"sync_batch_norm sums over all workers, 2 of which compute the same rows .*; set it to false"):
        Sharded.check(Train.model_validate(settings), gpt(), None)  # type: ignore[arg-type]

"""Strategy `sharded`: a model that is spread over workers trains as `ddp` does on one, and its checkpoints fit any layout."""

from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from layouts import SETTINGS, Fitted, fit_layout, gpt, gpt_settings, losses, steps
from torch import nn
from trainings import training

from pipelines.applications.language.task import Language
from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.strategies.sharded.parameter_shards import skeleton
from pipelines.strategies.sharded.settings import Degrees
from pipelines.strategies.sharded.settings import Settings as Parallel
from pipelines.strategies.sharded.sharded import Sharded
from pipelines.train.checkpoint.checkpoint_record import differing_tensors, read_digest_log
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.initial_model import first_model
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "shard 2": (2, {}),
    "shard 4": (4, {}),
    "2 replicas": (4, {"replicate": 2}),
    "2 replicas, reduced every pass": (4, {"replicate": "auto", "shard": 2, "reduce_every_pass": True, "reshard_after_forward": False}),
}
MOVED: list[tuple[int, dict[str, Any], int | None]] = [(4, {"replicate": 2}, 6), (2, {}, 20), (3, {}, None)]
"""Workers, layout, and steps after which each part of one run stops: within the first epoch, within the second, and at the end."""


def fit_in_turn(context: WorkerContext, home: Path) -> dict[str, Any]:
    """Train all layouts of a group of this size, since a group takes seconds to start; also a part of the moved run, and small GPTs."""
    layouts_of_group = {name: parallel for name, (workers, parallel) in LAYOUTS.items() if workers == context.world_size}
    results: dict[str, Any] = {
        name: fit_layout(context, home, home / name, {"strategy": {"kind": "sharded", **parallel}})
        for name, parallel in layouts_of_group.items()
    }
    for workers, parallel, stop_after in MOVED:
        if workers == context.world_size:
            results["moved"] = fit_layout(context, home, home / "moved", {"strategy": {"kind": "sharded", **parallel}}, stop_after)
    return results | (gpts(context) if context.world_size == 2 else {})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spread")
    training(folder, **SETTINGS)
    return folder


@pytest.fixture(scope="module")
def alone(home: Path) -> Fitted:
    return fit_layout(WorkerContext(), home, home / "alone", {"strategy": "ddp"})


@pytest.fixture(scope="module")
def groups(home: Path) -> dict[str, list[Any]]:
    """Trainings of each worker, by name; for a layout on 4 workers and on 2, of the smaller group."""
    results: dict[str, list[Any]] = {}
    for workers, _, _ in MOVED:
        answers = run_group(workers, home / f"group-{workers}", fit_in_turn, home)
        assert not any(isinstance(answer, Exception) for answer in answers), answers
        results |= {name: [answer[name] for answer in answers] for name in answers[0]}
    return results


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_metrics_and_weights_are_those_of_ddp_on_one_worker(
    home: Path, alone: Fitted, groups: dict[str, list[Any]], layout: str
) -> None:
    trained, _, weights = groups[layout][0]
    expected, _, wanted_weights = alone
    assert losses(home / layout) == pytest.approx(losses(home / "alone"), rel=1e-5)
    assert (trained.rows, trained.steps, trained.best_epoch) == (expected.rows, expected.steps, expected.best_epoch) == (2 * 962, 32, 2)
    assert trained.metrics == pytest.approx(expected.metrics, rel=1e-5)
    torch.testing.assert_close(weights, wanted_weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_initial_weights_are_those_of_ddp_bit_for_bit(alone: Fitted, groups: dict[str, list[Any]], layout: str) -> None:
    (_, before, _), *other_answers = groups[layout]
    assert before.keys() == alone[1].keys()
    assert all(torch.equal(before[name], values) for name, values in alone[1].items())
    assert all(actual[1] == {} == actual[2] for actual in other_answers), "only rank 0 gathers the model"


def test_every_worker_has_digests_of_its_parts(home: Path, groups: dict[str, list[Any]]) -> None:
    for name, parts in (("shard 2", 2), ("shard 4", 4), ("2 replicas", 2)):
        digests = read_digest_log(RunDirectory(str(home / name))).digests[32]
        for prefix in ("model.layers.0.weight[", "optimizer.state.layers.0.weight.exp_avg["):
            assert sum(part.startswith(prefix) for part in digests) == parts


def test_digests_of_other_parts_are_not_compared() -> None:
    recorded = {"w[0:2,0:4]": "a", "w[2:4,0:4]": "b", "v": "c"}
    assert differing_tensors([{"w[0:2,0:4]": "a"}, {"w[2:4,0:4]": "x", "v": "c"}], recorded) == ["w[2:4,0:4]"]
    assert differing_tensors([{"w[0:4,0:4]": "x", "v": "x"}], recorded) == ["v"]
    assert differing_tensors([{"v": "c"}], recorded) == ["w[0:2,0:4]", "w[2:4,0:4]"]


def test_p4_a_run_goes_on_in_any_layout(home: Path, alone: Fitted, groups: dict[str, list[Any]]) -> None:
    trained, _, weights = groups["moved"][0]
    assert trained.finished and losses(home / "moved") == pytest.approx(losses(home / "alone"), rel=1e-5)
    torch.testing.assert_close(weights, alone[2], rtol=1e-4, atol=1e-6)


GPTS: dict[str, dict[str, Any]] = {
    "plain": {"strategy": {"kind": "sharded", "shard": 2}},
    "selective": {"strategy": {"kind": "sharded", "shard": 2, "activation_checkpointing": "selective"}, "grad_accum_steps": 2},
    "full": {"strategy": {"kind": "sharded", "shard": 2, "activation_checkpointing": "full", "reshard_after_forward": False}},
    "offload": {"strategy": {"kind": "sharded", "shard": 2, "offload": True}},
}


def gpts(context: WorkerContext) -> dict[str, Any]:
    results = {name: steps(context, gpt_settings(context, **changes)) for name, changes in GPTS.items()}
    dropped = {kind: {"strategy": {"kind": "sharded", "activation_checkpointing": kind}} for kind in ("none", "full")}
    results |= {f"dropout, {kind}": steps(context, gpt_settings(context, **changes), 0.2) for kind, changes in dropped.items()}
    return {**results, "dropout, ddp": steps(context, gpt_settings(context, strategy="ddp"), 0.2)}


@pytest.mark.parametrize("name", GPTS)
def test_a_gpt_trains_and_writes_as_with_ddp_on_one_worker(groups: dict[str, list[Any]], name: str) -> None:
    expected, output, text = steps(WorkerContext(), gpt_settings(WorkerContext(), strategy="ddp"))
    (actual, first_output, first_text), (_, second_output, second_text) = groups[name]
    assert actual == pytest.approx(expected, rel=1e-4) and actual[-1] < actual[0] - 1
    torch.testing.assert_close(torch.cat([first_output, second_output]), output, rtol=1e-3, atol=1e-3)
    assert (first_text, second_text) == (text, "")


def test_dropout_draws_as_with_ddp_also_what_is_computed_again(groups: dict[str, list[Any]]) -> None:
    (actual, _, _), _ = groups["dropout, none"]
    assert groups["dropout, full"][0][0] == actual != groups["plain"][0][0]
    assert actual == pytest.approx(groups["dropout, ddp"][0][0], rel=1e-4)


def test_a_skeleton_has_constants_and_no_values() -> None:
    task = gpt()
    model = skeleton(task)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not model._extent_per_token.values.is_meta
    built = first_model(gpt_settings(WorkerContext()), task, None)
    assert {name: (parameter.shape, parameter.dtype) for name, parameter in model.named_parameters()} == {
        name: (parameter.shape, parameter.dtype) for name, parameter in built.named_parameters()
    }


class Shares(Language):
    """A model whose blocks share a parameter."""

    def model(self) -> nn.Module:
        model = super().model()
        first, second = self.blocks(model)
        second.wide = first.wide
        return model


class Scaled(Language):
    def model(self) -> nn.Module:
        model = super().model()
        model.scale = nn.Parameter(torch.ones(()))
        return model


class WithoutBlocks(Language):
    def blocks(self, model: nn.Module) -> tuple[()]:
        return ()


@pytest.mark.parametrize(
    ("kind", "parallel", "message"),
    [
        (Shares, {}, "network.blocks.0.wide.weight is used by two blocks, or by one and outside of it; strategy sharded cannot"),
        (Scaled, {}, r"scale is a scalar, which has no rows to spread; give it the shape \(1,\)"),
        (
            WithoutBlocks,
            {"activation_checkpointing": "full"},
            "activation_checkpointing is full, but task WithoutBlocks declares no blocks to compute again; set it to none",
        ),
    ],
)
def test_what_a_model_does_not_allow_is_said_before_a_worker_starts(kind: type[Language], parallel: dict[str, Any], message: str) -> None:
    gpt_task = gpt()
    with pytest.raises(ConfigError, match=message):
        Sharded.check(
            gpt_settings(WorkerContext(world_size=4), strategy={"kind": "sharded", **parallel}),
            kind(gpt_task.settings, gpt_task.data),
            None,
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            {"workers": 4, "strategy": {"kind": "sharded", "replicate": 2, "shard": 3}},
            "which makes 6 workers, but workers is 4; set one of them to auto",
        ),
        (
            {"workers": 4, "strategy": {"kind": "sharded", "replicate": "auto", "shard": 3}},
            "shard is 3, which makes 3 workers, and strategy.replicate is auto; 3 must divide 4, .* one of 1, 2, 4, or set workers to 6",
        ),
        (
            {"strategy": {"kind": "sharded", "replicate": "auto"}},
            "strategy.replicate and strategy.shard are auto; set one of them to a number",
        ),
        (
            {"workers": 8, "strategy": {"kind": "sharded", "pipeline": 2, "tensor": 3}},
            "pipeline is 2 and strategy.tensor is 3, .* or set workers to 12",
        ),
        (
            {"workers": 64, "strategy": {"kind": "sharded", "tensor": 4}},
            "workers is 64, of which 16 read different rows; it must be at most 8, the number",
        ),
        (
            {"workers": [2, 4], "strategy": {"kind": "sharded", "replicate": "auto", "shard": 2}},
            r"workers is \[2, 4\], but .* not fit every number",
        ),
        (
            {"workers": [2, 4], "strategy": {"kind": "sharded", "tensor": "auto", "shard": 1}},
            "strategy.tensor is auto, which does not fit every number",
        ),
    ],
)
def test_degrees_that_cannot_be(train: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Train.model_validate({"strategy": "sharded", **train})
    Train.model_validate({"strategy": "sharded", "workers": [2, 4]})


def test_the_product_of_degrees_is_the_number_of_workers() -> None:
    assert Parallel(tensor=2, pipeline=2, replicate=3).degrees(24) == Degrees(replicate=3, shard=2, pipeline=2, context=1, tensor=2)
    assert Parallel(tensor=2, shard=1, replicate="auto").degrees(6).workers_per_replica == 2
    assert Train.model_validate({"workers": 16, "shards": 8, "strategy": {"kind": "sharded", "tensor": 2}}).max_readers == 8

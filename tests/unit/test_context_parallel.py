"""Degree `context`: workers that divide the tokens of each row train as `ddp` does on one, in any combination with the other degrees."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from layouts import Fitted, fit_layout, gpt, gpt_settings, losses, steps
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from trainings import characters

from pipelines.applications.language.task import Language
from pipelines.errors import ConfigError
from pipelines.strategies.sharded.sharded import Sharded
from pipelines.strategies.sharded.tensor_and_context import DividedTokens
from pipelines.tasks.model_parallel import Tokens
from pipelines.train.workers import WorkerContext

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

words = partial(characters, task={"layers": 2, "heads": 2, "width": 32, "sample_tokens": 4})
"""Windows of 16 tokens; epochs end with a step of 2 of them."""
MOVED: list[tuple[int, dict[str, Any], int | None]] = [(4, {"context": 2}, 6), (2, {"context": 2}, 20)]
"""Workers, degrees, and steps after which each part of one run stops, the last one in the second epoch; `ddp` goes on from there."""
GPTS: dict[str, tuple[int, dict[str, Any]]] = {
    "selective": (2, {"grad_accum_steps": 2, "strategy": {"kind": "sharded", "context": 2, "activation_checkpointing": "selective"}}),
    "full": (2, {"strategy": {"kind": "sharded", "context": 2, "activation_checkpointing": "full"}}),
    "four parts": (4, {"strategy": {"kind": "sharded", "context": 4}}),
    "replicate": (4, {"strategy": {"kind": "sharded", "context": 2, "replicate": 2}}),
    "tensor": (4, {"strategy": {"kind": "sharded", "context": 2, "tensor": 2}}),
    "pipeline": (4, {"grad_accum_steps": 2, "strategy": {"kind": "sharded", "context": 2, "pipeline": 2}}),
}
"""Workers and settings."""


def run_in_turn(context: WorkerContext, home: Path) -> dict[str, Any]:
    """Compute all cases of a group of this size, since a group takes seconds to start."""
    results: dict[str, Any] = {
        name: steps(context, gpt_settings(context, **changes)) for name, (workers, changes) in GPTS.items() if workers == context.world_size
    }
    for number, (workers, parallel, stop_after) in enumerate(MOVED):
        if workers == context.world_size:
            results[f"moved {number}"] = fit_layout(
                context, home, home / "moved", {"strategy": {"kind": "sharded", **parallel}}, stop_after, words
            )[0]
    if context.world_size == 2:
        results["whole"] = fit_layout(context, home, home / "whole", {"strategy": {"kind": "sharded", "context": 2}}, None, words)
        results["dropout"] = steps(context, gpt_settings(context, strategy={"kind": "sharded", "context": 2}), 0.2)
    else:
        results["attention"] = attend_to_row(DividedTokens(24, init_device_mesh("cpu", (4,))), 24)
    return results


def attend_to_row(tokens: Tokens, count: int) -> tuple[Tensor, ...]:
    """The worker's positions, its part of causal attention, and the gradients with respect to queries, keys and values."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, 2, count, 3, 8, generator=generator)  # rows, tokens, heads, width; the last one is a gradient
    queries, keys, values, gradient = (tokens.local(tensor).transpose(1, 2).requires_grad_() for tensor in inputs)
    output = tokens.attend(queries, keys, values)
    gradients = torch.autograd.grad(output, (queries, keys, values), gradient)
    return tokens.positions(output.shape[2], output.device), output.detach(), *gradients


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def alone(home: Path) -> Fitted:
    """A training by `ddp` on one worker."""
    return fit_layout(WorkerContext(), home, home / "alone", {"strategy": "ddp"}, None, words)


@pytest.fixture(scope="module")
def groups(home: Path, alone: Fitted) -> dict[str, list[Any]]:
    """Results of each worker, by name."""
    results: dict[str, list[Any]] = {}
    for workers in (4, 2):
        answers = run_group(workers, home / f"group-{workers}", run_in_turn, home)
        assert not (failed := [repr(answer) for answer in answers if isinstance(answer, Exception)]), failed
        results |= {name: [answer[name] for answer in answers] for name in answers[0]}
    return results


@pytest.mark.full
def test_losses_metrics_and_weights_are_those_of_ddp_on_one_worker(home: Path, alone: Fitted, groups: dict[str, list[Any]]) -> None:
    (trained, before, weights), (other, *nothing) = groups["whole"]
    expected, wanted_before, wanted_weights = alone
    assert before.keys() == wanted_before.keys() and all(torch.equal(before[name], values) for name, values in wanted_before.items())
    assert losses(home / "whole") == pytest.approx(losses(home / "alone"), rel=1e-4)
    assert (trained.rows, trained.steps, trained.best_epoch) == (expected.rows, expected.steps, expected.best_epoch) == (2 * 962, 32, 2)
    assert trained.metrics == pytest.approx(expected.metrics, rel=1e-4) and other.metrics == trained.metrics
    torch.testing.assert_close(weights, wanted_weights, rtol=1e-2, atol=1e-4)
    assert nothing == [{}, {}], "only rank 0 gathers the model"


@pytest.mark.full
def test_a_run_goes_on_in_any_layout(home: Path, alone: Fitted, groups: dict[str, list[Any]]) -> None:
    assert [groups[f"moved {number}"][0].steps for number in range(len(MOVED))] == [7, 28]
    trained, _, weights = fit_layout(WorkerContext(), home, home / "moved", {"strategy": "ddp"}, None, words)
    assert trained.finished and losses(home / "moved") == pytest.approx(losses(home / "alone"), rel=1e-4)
    torch.testing.assert_close(weights, alone[2], rtol=1e-2, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", GPTS)
def test_a_gpt_trains_predicts_and_writes_as_with_ddp_on_one_worker(groups: dict[str, list[Any]], name: str) -> None:
    expected, output, text = steps(WorkerContext(), gpt_settings(WorkerContext(), strategy="ddp"))
    actual = groups[name]
    assert actual[0][0] == pytest.approx(expected, rel=1e-4) and expected[-1] < expected[0] - 1
    assert all(answer[0] == actual[0][0] for answer in actual)
    replicas = 2 if name == "replicate" else 1
    outputs = torch.cat([answer[1] for answer in actual[:: len(actual) // replicas]])
    torch.testing.assert_close(outputs, output, rtol=1e-3, atol=1e-3)
    assert [answer[2] for answer in actual] == [text] + [""] * (len(actual) - 1)


@pytest.mark.full
def test_parts_of_attention_make_up_the_whole(groups: dict[str, list[Any]]) -> None:
    _, *expected = attend_to_row(Tokens(), 24)
    order = torch.cat([part[0] for part in groups["attention"]]).argsort()
    assert [part[0].tolist() for part in groups["attention"]][:2] == [[0, 1, 2, 21, 22, 23], [3, 4, 5, 18, 19, 20]]
    for number, values in enumerate(expected):
        gathered = torch.cat([part[number + 1] for part in groups["attention"]], dim=2)[:, :, order]
        torch.testing.assert_close(gathered, values, rtol=1e-5, atol=1e-5)


@pytest.mark.full
def test_dropout_draws_other_numbers_for_each_part(groups: dict[str, list[Any]]) -> None:
    actual, other = groups["dropout"]
    assert actual[0] == other[0] and torch.equal(actual[1], other[1])
    assert actual[0] != groups["selective"][0][0] and actual[0][-1] < actual[0][0]


class Undivided(Language):
    def model(self) -> nn.Module:
        return nn.Linear(2, 2)


def test_a_task_without_tokens_is_refused_before_a_worker_starts() -> None:
    with pytest.raises(ConfigError, match="context is 2, but task Undivided supports only replicate, shard; set context to 1"):
        Sharded.check(
            gpt_settings(WorkerContext(world_size=2), strategy={"kind": "sharded", "context": 2}),
            Undivided(gpt().settings, gpt().data),
            None,
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("degree", "message"),
    [
        (3, "context is 3, but a row has 16 tokens to predict from, which 6, two parts for each worker, does not divide; set it to one of"),
        (16, "context is 16, but a row has 16 tokens .*; set it to one of 1, 2, 4, 8, or change the length of windows in dataset.features"),
    ],
)
def test_what_the_length_of_windows_does_not_allow_is_said_before_a_worker_starts(degree: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sharded.check(gpt_settings(WorkerContext(world_size=degree), strategy={"kind": "sharded", "context": degree}), gpt(), None)  # type: ignore[arg-type]

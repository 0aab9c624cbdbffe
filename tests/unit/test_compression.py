"""Compression of gradients: counts stay exact, and what is not sent is not lost."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import run_group
from torch import Tensor, nn
from trainings import StopsAfter, open_dataset, training

from pipelines.config.tasks.task import TabularSettings as Settings
from pipelines.config.train.train import Train
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Batch, Data
from pipelines.tasks.bind import build_task
from pipelines.tasks.tabular import Tabular
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.ddp.ddp import DataParallel
from pipelines.train.loop import Loop
from pipelines.train.step_statistics import Flags, StepResult
from pipelines.train.strategy import create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS: dict[str, Any] = {
    "bf16": "bf16", "fp16": "fp16", "powersgd": {"kind": "powersgd", "rank": 3}, "topk": {"kind": "topk", "share": 0.02},
}  # fmt: skip
WITH_MEMORY = ("powersgd", "topk")
COLUMNS = (
    TensorColumn(name="x", dtype="float32", shape=(20,)),
    TensorColumn(name="label", dtype="int64", role="target", cardinality=3),
)
TASK = Tabular(Settings(hidden=(64, 40, 64, 40), class_weights=(1.0, 5.0, 0.1)), Data(COLUMNS, ("a", "b", "c")))
"""The weight of a batch is not its number of rows, and matrices of one shape are not neighbours."""
ROWS, RATE = 48, 0.1
SHARES = {1: (48,), 2: (31, 17), 3: (0, 31, 17)}


class Net(nn.Module):
    """Parameters of all shapes: matrices, vectors, a scalar, an empty one, and one that is not contiguous in memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.conv.weight.data = self.conv.weight.data.contiguous(memory_format=torch.channels_last)
        self.inner = TASK.model()
        self.scale, self.nothing = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.zeros(0, 3))

    def forward(self, batch: Batch) -> Tensor:
        image = self.conv(batch["x"].view(-1, 4, 1, 5).contiguous(memory_format=torch.channels_last))
        return self.inner({"x": self.scale * image.flatten(1)}) + self.nothing.sum()


def train(kind: Any, **settings: Any) -> Train:
    plain = {"global_batch": ROWS, "optimizer": "sgd", "momentum": 0, "weight_decay": 0, "precision": "fp32"}
    return Train.model_validate({**plain, "strategy": {"kind": "ddp", "compression": kind}, **settings})


def rows(number: int) -> Batch:
    generator = torch.Generator().manual_seed(number)
    return {"x": torch.randn(ROWS, 20, generator=generator), "label": torch.randint(3, (ROWS,), generator=generator).sort().values}


def part(batch: Batch, context: WorkerContext) -> Batch:
    return {name: values.split(SHARES[context.world_size])[context.rank] for name, values in batch.items()}


def strategy(context: WorkerContext, settings: Train) -> DataParallel:
    return DataParallel(settings, TASK, Net, context)


def step(trained: DataParallel, number: int, batch: Batch | None = None) -> StepResult:
    worker_rows = part(rows(number) if batch is None else batch, trained.mesh.context)
    return trained.step(worker_rows, number, RATE, Flags(save=trained.mesh.context.rank == 0, written=True))


def flat(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten().clone() for tensor in values.values()])


def weights(trained: DataParallel) -> Tensor:
    return flat(trained.model.state_dict())


def gradient(trained: DataParallel, number: int) -> Tensor:
    """The gradient of the mean loss over all rows of a step, at the model's weights."""
    model = deepcopy(trained.model)
    total, weight = TASK.loss(model, rows(number))
    (total / weight).backward()
    return flat({name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None})


def unsent(trained: DataParallel) -> Tensor:
    """The mean error of the workers, the same on all of them from now on."""
    trained.sync_buffers()
    return trained.state_dict()["compression"]["error"][: len(weights(trained))].clone()


def train_steps(trained: DataParallel, numbers: range, even_out_at: int = -1) -> tuple[list[float], float]:
    """Losses of the steps, and how much of the true gradients is neither applied nor kept, relative to their sum."""
    losses, expected = [], torch.zeros_like(weights(trained))
    before, owed = weights(trained), unsent(trained)
    for number in numbers:
        expected += gradient(trained, number)
        losses.append(float(step(trained, number).loss_sum))
        if number == even_out_at:
            trained.sync_buffers()
    applied = (before - weights(trained)) / RATE
    return losses, float((applied + unsent(trained) - owed - expected).norm() / expected.norm())


def counts_and_losses(context: WorkerContext, kind: Any) -> tuple[list[list[float]], list[float], Tensor]:
    trained = strategy(context, train(kind, grad_accum_steps=2, clip_norm=10.0))
    results = [step(trained, number) for number in range(5)]
    counts = [[float(result.rows), *result.flags.tolist()] for result in results]
    return counts, [float(result.loss_sum) for result in results], weights(trained)


def save_and_resume(context: WorkerContext, kind: Any) -> dict[str, Any]:
    """Six steps with a save after the third; then the last three again, from the save."""
    undisturbed = strategy(context, train(kind))
    _, gap = train_steps(undisturbed, range(3))
    state = deepcopy(undisturbed.state_dict())
    losses, _ = train_steps(undisturbed, range(3, 6))
    return {"gap": gap, "losses": losses, "state": state, "again": resume_from(context, kind, state)}


def resume_from(context: WorkerContext, kind: Any, state: dict[str, Any]) -> dict[str, Any]:
    trained = strategy(context, train(kind))
    trained.load_state_dict(deepcopy(state))
    owed = float(unsent(trained).norm())
    losses, gap = train_steps(trained, range(3, 6))
    return {"gap": gap, "losses": losses, "owed": owed, "left": float(unsent(trained).norm())}


def overflowing(context: WorkerContext, kind: Any) -> dict[str, Any]:
    """fp16 steps; in one of them, the last worker's rows are infinite. Another one has no rows at all."""
    trained = strategy(context, train(kind, precision="fp16"))
    while step(trained, 0).grad_norm.isinf():  # the scaler finds its scale
        pass
    for number in range(1, 3):
        step(trained, number)
    before, owed = weights(trained), unsent(trained)
    infinite = rows(3)
    infinite["x"][-1] = torch.inf
    overflowed = step(trained, 3, infinite)
    empty = {name: values[:0] for name, values in rows(0).items()}
    trained.step(empty, 4, RATE, Flags())
    unchanged = torch.equal(before, weights(trained)) and torch.equal(owed, unsent(trained))
    _, gap = train_steps(trained, range(5, 9))
    return {"overflowed": not bool(overflowed.grad_norm.isfinite()), "unchanged": unchanged, "gap": gap}


class Zero(nn.Module):
    """A model whose first layer has no gradient in the first step, since its second layer is zero."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(20, 32), nn.Linear(32, 3)
        nn.init.zeros_(self.second.weight)

    def forward(self, batch: Batch) -> Tensor:
        return self.second(self.first(batch["x"]))


def first_layer_moved(context: WorkerContext, rank: int) -> float:
    trained = DataParallel(train({"kind": "powersgd", "rank": rank}), TASK, Zero, context)
    before = trained.model.state_dict()["first.weight"].clone()
    for number in range(3):
        step(trained, number)
    return float((trained.model.state_dict()["first.weight"] - before).norm())


def all_of_a_group(context: WorkerContext, states: dict[str, Any] | None) -> dict[str, Any]:
    """All that the tests below look at: starting processes takes longer than the steps. `states` are another group's saves."""
    results: dict[str, Any] = {name: counts_and_losses(context, kind) for name, kind in {"none": "none", **KINDS}.items()}
    for name in WITH_MEMORY:
        results[f"saved {name}"] = save_and_resume(context, KINDS[name])
        results[f"overflowing {name}"] = overflowing(context, KINDS[name])
        if states:
            results[f"theirs {name}"] = resume_from(context, KINDS[name], states[name])
    results["start_step"] = counts_and_losses(context, {"kind": "powersgd", "start_step": 5})
    results["zero"] = [first_layer_moved(context, rank) for rank in (1, 4)]  # torch has a way of its own up to rank 2
    return results


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """The answers of three workers, and of two that are given their saves."""
    group_of_three = run_group(3, tmp_path_factory.mktemp("three"), all_of_a_group, None)
    group_of_two = run_group(
        2, tmp_path_factory.mktemp("two"), all_of_a_group, {kind: group_of_three[0][f"saved {kind}"]["state"] for kind in WITH_MEMORY}
    )
    return {2: group_of_two, 3: group_of_three}


@pytest.fixture(params=[2, 3], ids=["two workers", "three workers"])
def group(request: pytest.FixtureRequest, groups: dict[int, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return groups[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_exact_and_weights_the_same_on_all_workers(group: list[dict[str, Any]], kind: str) -> None:
    for answer in group:
        counts, losses, reached = answer[kind]
        assert counts == [[ROWS, 1.0, 0.0, len(group), 0.0]] * 5
        assert losses == group[0][kind][1]
        assert torch.equal(reached, group[0][kind][2])


@pytest.mark.parametrize(("kind", "tolerance"), [("bf16", 0.01), ("fp16", 0.001), ("powersgd", 0.15), ("topk", 0.25)])
def test_losses_are_near_those_of_whole_gradients(group: list[dict[str, Any]], kind: str, tolerance: float) -> None:
    _, plain, _ = group[0]["none"]
    _, losses, reached = group[0][kind]
    assert losses == pytest.approx(plain, rel=tolerance)
    assert not torch.equal(reached, group[0]["none"][2]), "it is compressed"
    assert losses[-1] < losses[0]


def test_powersgd_sends_whole_gradients_before_its_first_step(group: list[dict[str, Any]]) -> None:
    torch.testing.assert_close(group[0]["start_step"][2], group[0]["none"][2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", WITH_MEMORY)
def test_what_is_not_applied_is_kept(group: list[dict[str, Any]], kind: str) -> None:
    for answer in group:
        assert answer[f"saved {kind}"]["gap"] < 1e-5
        assert answer[f"saved {kind}"]["again"]["left"] > 0


@pytest.mark.parametrize("kind", WITH_MEMORY)
def test_a_run_that_resumes_takes_the_steps_of_one_that_continues(group: list[dict[str, Any]], kind: str) -> None:
    saved = group[0][f"saved {kind}"]
    assert saved["losses"] == saved["again"]["losses"]


@pytest.mark.parametrize("kind", WITH_MEMORY)
def test_fewer_workers_continue_with_all_that_is_not_sent(groups: dict[int, list[dict[str, Any]]], kind: str) -> None:
    saved = groups[3][0][f"saved {kind}"]
    alone = resume_from(WorkerContext(), KINDS[kind], saved["state"])
    for answer in [answer[f"theirs {kind}"] for answer in groups[2]] + [alone]:
        assert answer["owed"] == saved["again"]["owed"] > 0
        assert answer["gap"] < 1e-5
    assert alone["left"] == 0, "a worker alone applies it"


@pytest.mark.parametrize("kind", WITH_MEMORY)
def test_a_step_that_is_skipped_leaves_the_errors_as_they_are(group: list[dict[str, Any]], kind: str) -> None:
    for answer in group:
        actual = answer[f"overflowing {kind}"]
        assert actual["overflowed"] and actual["unchanged"]
        assert actual["gap"] < 0.01, "errors are not in the units of a loss scale that changes"


def test_a_matrix_whose_gradient_was_zero_is_trained(group: list[dict[str, Any]]) -> None:
    assert min(moved for answer in group for moved in answer["zero"]) > 1e-3


def test_only_compressed_runs_with_memory_have_it_in_their_state() -> None:
    states = {kind: strategy(WorkerContext(), train(kind)).state_dict() for kind in ("none", "bf16", "powersgd", "topk")}
    assert {kind: set(state.get("compression", {})) for kind, state in states.items()} == {
        "none": set(), "bf16": set(), "powersgd": {"error", "powersgd"}, "topk": {"error"},
    }  # fmt: skip


def fit(context: WorkerContext, home: str, kind: str, run: str, stop_after: int | None = None) -> tuple[bool, int, Tensor]:
    """Train in the folder `run`. Whether the run finished, its rows, and its weights."""
    config = training(
        Path(home),
        uri="sqlite:///unused",
        strategy={"kind": "ddp", "compression": KINDS[kind]},
        shards=6,
        global_batch=60,
        checkpoint={"every_steps": 10},
    )
    version = open_dataset(config)
    task = build_task(config.task, version.manifest)
    trained = create_strategy(config.train, task, context)
    checkpoints = Checkpoints(RunDirectory(f"{home}/{run} {kind}"), context, keep=2)
    fitted = Loop(config, version, task, trained, checkpoints, StopsAfter(stop_after)).run()
    return fitted.finished, fitted.rows, flat(dict(trained.model.state_dict()))


def fit_and_resume(context: WorkerContext, home: str) -> dict[str, Any]:
    """Both stop after a step that is saved in any case."""
    results = {}
    for kind in WITH_MEMORY:
        undisturbed = fit(context, home, kind, "undisturbed")
        stopped = [fit(context, home, kind, run, stop_after=9) for run in ("stopped", "for more workers")]
        results[kind] = undisturbed, stopped[0], fit(context, home, kind, "stopped")
    return results


def fit_on_more_workers(context: WorkerContext, home: str) -> dict[str, Any]:
    return {kind: fit(context, home, kind, "for more workers") for kind in WITH_MEMORY}


@pytest.mark.full
@pytest.mark.slow
def test_p4_a_run_resumes_from_its_checkpoint_on_any_number_of_workers(tmp_path: Path) -> None:
    training(tmp_path, rows=720, uri="sqlite:///unused")
    of_two = run_group(2, tmp_path / "two", fit_and_resume, str(tmp_path))[0]
    of_three = run_group(3, tmp_path / "three", fit_on_more_workers, str(tmp_path))[0]
    for kind, (undisturbed, stopped, resumed) in of_two.items():
        assert (undisturbed[0], stopped[0], resumed[0], of_three[kind][0]) == (True, False, True, True)
        assert undisturbed[1] == resumed[1] == of_three[kind][1]
        assert torch.equal(undisturbed[2], resumed[2])

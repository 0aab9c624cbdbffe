"""Buffers: what stays keeps its bits, what moves has one mean, and what is not written in place is refused."""

from pathlib import Path

import pytest
import torch
from groups import run_group
from torch import Tensor, nn

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError, TrainingError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Batch
from pipelines.train.buffers import ModelBuffers
from pipelines.train.exact.exact import Exact
from pipelines.train.step_statistics import Flags
from pipelines.train.workers import WorkerContext

CONSTANTS = {
    "mask": torch.full((3, 3), -torch.inf).triu(1),
    "least": torch.full((2,), torch.finfo(torch.float32).min),
    "third": torch.tensor([12_582_914.0]),  # whose sum over three workers float32 rounds
    "turns": torch.polar(torch.ones(4), torch.arange(4.0)),
    "hash": torch.tensor([2**62 + 1]),
    "chosen": torch.tensor([True, False]),
    "slopes": -torch.arange(3.0),  # of which one is -0
    "short": torch.tensor([-7, 7], dtype=torch.int16),
    "strided": torch.arange(8)[::2],
}


class Model(nn.Module):
    """Constants, a mean that moves, and a count."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        for name, values in CONSTANTS.items():
            self.register_buffer(name, values if name == "strided" else values.clone(), persistent=name != "mask")
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            self.mean.lerp_(batch["x"].mean(0), 0.5)
            self.count += 1
        return batch["x"] @ self.weight


class Replacing(Model):
    def forward(self, batch: Batch) -> Tensor:
        outputs = super().forward(batch)
        self.mean = 0.9 * self.mean + 0.1
        return outputs * self.mean.sum()


class Late(Model):
    def forward(self, batch: Batch) -> Tensor:
        if not hasattr(self, "angles"):
            self.register_buffer("angles", torch.arange(3))
        return super().forward(batch)


class Sums(Model):
    """Whole numbers that depend on the rows."""

    def forward(self, batch: Batch) -> Tensor:
        self.count += int(batch["x"][0, 0] > 0)
        return super().forward(batch)


class Unsaved(Model):
    """A mean that moves and is in no checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2), persistent=False)


class Outputs:
    """The part of a task that a strategy calls."""

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        outputs = model(batch)
        return outputs.square().sum(), torch.tensor(float(len(outputs)))


def exact(model: nn.Module) -> Exact:
    settings = Train.model_validate({"strategy": "exact", "shards": 2, "global_batch": 4})
    return Exact(settings, Outputs(), lambda: model, WorkerContext())  # type: ignore[arg-type]


def microbatches() -> list[Batch]:
    return [{"x": torch.full((2, 2), 1.0)}, {"x": torch.full((2, 2), -3.0)}]


def test_p5_buffers_move_by_the_mean_of_the_shards_and_constants_keep_their_bits() -> None:
    strategy = exact(Model())
    for number in range(2):
        strategy.step(microbatches(), number, 0.01, Flags())
    strategy.sync_buffers()
    final_buffers = dict(strategy.model.named_buffers())
    assert model_digest({name: final_buffers[name] for name in CONSTANTS}) == model_digest(CONSTANTS)
    assert final_buffers["mean"].tolist() == [-0.75, -0.75]  # half way to -1, twice
    assert final_buffers["count"] == 2


@pytest.mark.parametrize(("model", "name"), [(Replacing(), "mean"), (Late(), "angles")], ids=["replaced", "made"])
def test_p5_a_buffer_that_is_not_written_in_place_is_refused(model: nn.Module, name: str) -> None:
    with pytest.raises(ConfigError, match=f"buffer {name} was added, replaced or removed by a pass.*copy_, or set train.strategy to ddp"):
        exact(model).step(microbatches(), 0, 0.01, Flags())


def test_p5_a_buffer_that_moves_and_is_in_no_checkpoint_is_refused() -> None:
    """A resumed run would begin with its first value."""
    with pytest.raises(ConfigError, match="buffer mean is changed by a pass, but persistent=False keeps it out of checkpoints"):
        exact(Unsaved()).step(microbatches(), 0, 0.01, Flags())


def test_p5_a_buffer_that_is_replaced_later_is_found_before_it_is_saved() -> None:
    strategy = exact(Model())
    strategy.step(microbatches(), 0, 0.01, Flags())
    strategy.model.mean = torch.ones(2)
    with pytest.raises(ConfigError, match="buffer mean was added, replaced or removed"):
        strategy.sync_buffers()


def test_p5_whole_numbers_that_differ_from_shard_to_shard_have_no_mean() -> None:
    with pytest.raises(TrainingError, match=r"integer buffer count changed by \[1.5\] on average over shards; set train.strategy to ddp"):
        exact(Sums()).step(microbatches(), 0, 0.01, Flags())


def test_p5_batch_norm_s_count_of_passes_is_rounded() -> None:
    """With `grad_accum_steps`, a shard with fewer rows may have fewer passes."""
    buffers = ModelBuffers(nn.Sequential(nn.BatchNorm1d(1)))
    before = buffers.clones()
    buffers.move(before, torch.tensor([0.5, 0.5, 3.5], dtype=torch.float64))
    assert [values.item() for values in buffers.clones()] == [0.5, 1.5, 4]


def average_in_group(context: WorkerContext) -> dict[str, Tensor]:
    model = Model()
    model.mean += context.rank
    model.count += context.rank
    ModelBuffers(model).average(context.world_size)
    return dict(model.named_buffers())


def test_the_mean_over_workers_leaves_alone_what_is_the_same_on_all(tmp_path: Path) -> None:
    for buffers in run_group(3, tmp_path, average_in_group):
        assert model_digest({name: buffers[name] for name in CONSTANTS}) == model_digest(CONSTANTS)
        assert buffers["mean"].tolist() == [1.0, 1.0]
        assert buffers["count"] == 2

"""Strategy `exact`: one tree over the shards, whichever workers own them, and so the same weights bit for bit."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from groups import run_processes
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint
from versions import write_version

from pipelines.config.train.train import Train
from pipelines.data.loader import Loader, Order, shard_range
from pipelines.data.versions.versions import open_version
from pipelines.errors import ConfigError, TrainingError
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Batch
from pipelines.train.exact import gradient_reducer
from pipelines.train.exact.exact import Exact
from pipelines.train.exact.gradient_reducer import GradientReducer
from pipelines.train.ordered_all_reduce import additions, halves, largest_nodes, tree_sum
from pipelines.train.step_statistics import Flags
from pipelines.train.workers import Mesh, WorkerContext

pytestmark = pytest.mark.slow


@given(st.integers(1, 64), st.data())
def test_p5_the_tree_is_one_however_shards_are_dealt(shards: int, data: st.DataObject) -> None:
    world_size = data.draw(st.integers(1, shards))
    owned = [shard_range(rank, world_size, shards) for rank in range(world_size)]
    scales = torch.tensor([1e-2, 1e-1, 1.0, 1e1, 1e2])
    terms = torch.randn(shards, 5, generator=torch.Generator().manual_seed(shards)) * scales

    def leaf(span: tuple[int, int]) -> torch.Tensor | None:
        return terms[span[0]].clone() if span[1] - span[0] == 1 else None

    total = tree_sum((0, shards), leaf)
    nodes = [tree_sum(span, leaf) for block in owned for span in largest_nodes(block, shards)]
    spans = [span for block in owned for span in largest_nodes(block, shards)]
    assert torch.equal(tree_sum((0, shards), dict(zip(spans, nodes, strict=True)).get), total)
    assert [shard for span in spans for shard in range(*span)] == list(range(shards))


@given(st.integers(1, 64), st.data())
def test_p5_a_worker_adds_as_a_binary_counter(shards: int, data: st.DataObject) -> None:
    """It adds the newest two sums at a time, and its largest nodes remain."""
    world_size = data.draw(st.integers(1, shards))
    block = shard_range(data.draw(st.integers(0, world_size - 1)), world_size, shards)
    waiting: list[tuple[int, int]] = []
    for shard, times in zip(block, additions(block, shards), strict=True):
        waiting.append((shard, shard + 1))
        for _ in range(times):
            later, earlier = waiting.pop(), waiting.pop()
            assert halves((earlier[0], later[1])) == (earlier, later)
            waiting.append((earlier[0], later[1]))
        assert len(waiting) <= shards.bit_length() + 1
    assert waiting == largest_nodes(block, shards)


def test_p5_a_power_of_two_of_workers_contributes_one_node_each() -> None:
    assert [largest_nodes(shard_range(rank, 4, 8), 8) for rank in range(4)] == [[(0, 2)], [(2, 4)], [(4, 6)], [(6, 8)]]
    assert halves((0, 6)) == ((0, 4), (4, 6))
    assert largest_nodes(range(1, 7), 8) == [(1, 2), (2, 4), (4, 6), (6, 7)]


class Network(nn.Module):
    """Embedding, batch norm, dropout, and a parameter that no row uses."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 3)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.layers(torch.cat([batch["x"], self.embedding(batch["code"])], 1)).squeeze(1)


class Squares:
    """The part of a task that a strategy calls."""

    def loss(self, model: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        errors = model(batch) - batch["label"]
        return errors.square().sum(), torch.tensor(float(len(errors)))


CASES: dict[str, dict[str, object]] = {
    "adamw": {"optimizer": "adamw"},
    "muon": {"optimizer": "muon"},
    "sgd, accumulated, 6 shards, many buckets": {"optimizer": "sgd", "grad_accum_steps": 3, "shards": 6},
    "bf16, 5 shards": {"precision": "bf16", "shards": 5, "global_batch": 100},
    "fp16, one short step": {"precision": "fp16", "global_batch": 4096},
}
WORLD_SIZES = (1, 2, 3, 5)


def train_all(rank: int, folder: str) -> None:
    """Every case with every number of workers, in turn; those that a case does not need sit it out."""
    bucket_bytes = gradient_reducer.BUCKET_BYTES
    for case, changes in CASES.items():
        gradient_reducer.BUCKET_BYTES = 64 if "many buckets" in case else bucket_bytes
        for world_size in WORLD_SIZES:
            if rank < world_size:
                rendezvous = f"file://{folder}/rendezvous-{case}-{world_size}"
                dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world_size)
                train(WorkerContext(rank, world_size), folder, case, changes)
                dist.destroy_process_group()


def train(context: WorkerContext, folder: str, case: str, changes: dict[str, object]) -> None:
    """Two epochs; worker 0 writes the weights' digest and the last loss."""
    values = {"strategy": "exact", "global_batch": 96, "clip_norm": 1.0, "remainder": "keep", **changes}
    settings = Train.model_validate(values)
    torch.manual_seed(0)
    strategy = Exact(settings, Squares(), Network, context)  # type: ignore[arg-type]
    order = Order(settings.shards, settings.global_batch, settings.seed, remainder=settings.remainder)
    loader = Loader(open_version(f"{folder}/version"), "train", order, Mesh(context).worker_shards(settings.shards))
    number = 0
    for _ in range(2):
        for batch in strategy.batches(loader):
            result = strategy.step(batch, number, 0.01, Flags(written=True))
            assert result.flags.tolist() == [0, 0, context.world_size, 0]
            number += 1
    if context.rank == 0:
        actual = f"{model_digest(strategy.model.state_dict())} {float(result.loss_sum):.17g}"
        Path(f"{folder}/{case}-{context.world_size}").write_text(actual)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("exact")
    rows = {
        "x": random.normal(size=(1_000, 5)).astype(np.float32),
        "code": random.integers(0, 10, 1_000).astype(np.int32),
        "label": random.normal(size=1_000).astype(np.float32),
    }
    write_version(folder / "version", {"train": [rows]})
    run_processes(max(WORLD_SIZES), train_all, str(folder))
    return folder


@pytest.mark.parametrize("case", CASES)
def test_p5_weights_are_equal_for_every_number_of_workers(folder: Path, case: str) -> None:
    results = {world_size: (folder / f"{case}-{world_size}").read_text() for world_size in WORLD_SIZES}
    assert len(set(results.values())) == 1, results


def test_p5_the_cases_differ(folder: Path) -> None:
    assert len({(folder / f"{case}-1").read_text() for case in CASES}) == len(CASES)


def exact(model: nn.Module, **changes: object) -> Exact:
    settings = Train.model_validate({"strategy": "exact", "shards": 2, "global_batch": 8, **changes})
    return Exact(settings, Squares(), lambda: model, WorkerContext())  # type: ignore[arg-type]


def microbatches() -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(4, 5, generator=generator) for _ in range(2)]
    return [{"x": x, "code": torch.arange(4), "label": x.sum(1)} for x in inputs]


class Numpys(nn.Linear):
    """Noise that torch's seed does not decide."""

    def forward(self, batch: Batch) -> torch.Tensor:  # type: ignore[override]
        return super().forward(batch["x"] + float(np.random.default_rng().random())).squeeze(1)


class Puts(nn.Linear):
    """torch has no deterministic kernel for this."""

    def forward(self, batch: Batch) -> torch.Tensor:  # type: ignore[override]
        output = super().forward(batch["x"]).squeeze(1)
        return output.clone().put_(torch.arange(4), output.detach()) + output


class Sparse(nn.Module):
    """The layer does not say so, its gradient does."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(10, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        return nn.functional.embedding(batch["code"], self.table, sparse=True).squeeze(1)


class Twice(nn.Linear):
    """Re-entrant checkpointing reaches the weights in two backward passes."""

    def forward(self, batch: Batch) -> torch.Tensor:  # type: ignore[override]
        inner = checkpoint(super().forward, batch["x"].requires_grad_(), use_reentrant=True)
        return (inner + super().forward(batch["x"])).squeeze(1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.SyncBatchNorm(3)), "0 is a synchronised batch norm, whose sums depend on the number of workers"),
        (nn.Sequential(nn.Linear(1, 1), nn.EmbeddingBag(3, 3, sparse=True)), "1 has sparse gradients.*set sparse=False"),
        (Sparse(), "table has a sparse gradient; a reproducible strategy does not support it"),
        (Puts(5, 1), "put_ has no deterministic kernel on this device; a reproducible strategy does not support it"),
        (
            Numpys(5, 1),
            "two passes over the same rows from the same state differ in the loss: .*do not depend on torch's seed",
        ),
    ],
    ids=["synchronised batch norm", "sparse layer", "sparse gradient", "kernel", "random numbers"],
)
def test_p5_what_has_no_deterministic_form_is_refused_by_name(model: nn.Module, message: str) -> None:
    before = model_digest(model.state_dict())
    with pytest.raises(ConfigError, match=message):
        exact(model).step(microbatches(), 0, 0.01, Flags())
    assert model_digest(model.state_dict()) == before


def test_a_gradient_that_comes_twice_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"was computed twice in one backward pass, .*; set use_reentrant=False"):
        exact(Twice(5, 1)).step(microbatches(), 0, 0.01, Flags())


def test_gradients_lie_in_memory_as_weights_do() -> None:
    """Fused optimizers read both in the order of memory."""
    parameters = [nn.Parameter(torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)), nn.Parameter(torch.randn(()))]
    gradients = GradientReducer(parameters, 1, [range(2)], 0, 2)
    for _ in range(2):
        gradients.begin()
        gradients.last_pass()
        (parameters[0].square().sum() + parameters[1]).backward()
        gradients.end(torch.ones(1, dtype=torch.float64))
    assert gradients.wait().tolist() == [2.0]
    for parameter, expected in zip(parameters, (4 * parameters[0], torch.tensor(2.0)), strict=True):
        assert parameter.grad is not None and parameter.grad.stride() == parameter.stride()
        assert torch.equal(parameter.grad, expected)

"""Strategy `exact`: one tree over the shards, whoever plays them, and so the same weights bit for bit."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from versions import write_version

from pipelines.config.train import Train
from pipelines.dataset.versions import open_version
from pipelines.loader import Loader, Order, shards_of
from pipelines.tasks.base import Batch
from pipelines.train.exact import Exact
from pipelines.train.place import Place
from pipelines.train.tree import additions, halves, largest_nodes, tree_sum
from pipelines.train.weights import model_digest


@given(st.integers(1, 64), st.data())
def test_p5_the_tree_is_one_however_shards_are_dealt(shards: int, data: st.DataObject) -> None:
    world_size = data.draw(st.integers(1, shards))
    plays = [shards_of(rank, world_size, shards) for rank in range(world_size)]
    scales = torch.tensor([1e-2, 1e-1, 1.0, 1e1, 1e2])
    terms = torch.randn(shards, 5, generator=torch.Generator().manual_seed(shards)) * scales

    def leaf(span: tuple[int, int]) -> torch.Tensor | None:
        return terms[span[0]].clone() if span[1] - span[0] == 1 else None

    whole = tree_sum((0, shards), leaf)
    nodes = [tree_sum(span, leaf) for block in plays for span in largest_nodes(block, shards)]
    spans = [span for block in plays for span in largest_nodes(block, shards)]
    assert torch.equal(tree_sum((0, shards), dict(zip(spans, nodes, strict=True)).get), whole)
    assert [shard for span in spans for shard in range(*span)] == list(range(shards))


def test_p5_a_power_of_two_of_workers_contributes_one_node_each() -> None:
    assert [largest_nodes(shards_of(rank, 4, 8), 8) for rank in range(4)] == [[(0, 2)], [(2, 4)], [(4, 6)], [(6, 8)]]
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
    "sgd, accumulated, 6 shards": {"optimizer": "sgd", "accumulate": 3, "shards": 6},
    "bf16, 5 shards": {"precision": "bf16", "shards": 5, "global_batch": 100},
    "fp16, one short step": {"precision": "fp16", "global_batch": 4096},
}
WORLD_SIZES = (1, 2, 3, 5)


def train_all(rank: int, folder: str) -> None:
    """Every case with every number of workers, in turn; those that a case does not need sit it out."""
    for case, changes in CASES.items():
        for world_size in WORLD_SIZES:
            if rank < world_size:
                meeting = f"file://{folder}/meeting-{case}-{world_size}"
                dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
                train(Place(rank, world_size), folder, case, changes)
                dist.destroy_process_group()


def train(place: Place, folder: str, case: str, changes: dict[str, object]) -> None:
    """Two epochs; worker 0 writes the weights' digest and the last loss."""
    values = {"strategy": "exact", "global_batch": 96, "clip_norm": 1.0, "remainder": "keep", **changes}
    settings = Train.model_validate(values)
    torch.manual_seed(0)
    strategy = Exact(settings, Squares(), Network(), place)  # type: ignore[arg-type]
    order = Order(settings.shards, settings.global_batch, settings.seed, remainder=settings.remainder)
    loader = Loader(open_version(f"{folder}/version"), "train", order, place.plays(settings.shards))
    number = 0
    for _ in range(2):
        for batch in strategy.batches(loader):
            sums = strategy.step(batch, number, 0.01, [1.0])
            assert sums[-1] == place.world_size
            number += 1
    if place.rank == 0:
        found = f"{model_digest(strategy.model.state_dict())} {float(sums[2]):.17g}"
        Path(f"{folder}/{case}-{place.world_size}").write_text(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("exact")
    rows = {
        "x": random.normal(size=(1_000, 5)).astype(np.float32),
        "code": random.integers(0, 10, 1_000).astype(np.int32),
        "label": random.normal(size=1_000).astype(np.float32),
    }
    write_version(folder / "version", {"train": [rows]})
    mp.spawn(train_all, (str(folder),), nprocs=max(WORLD_SIZES))
    return folder


@pytest.mark.parametrize("case", CASES)
def test_p5_weights_are_equal_for_every_number_of_workers(folder: Path, case: str) -> None:
    found = {world_size: (folder / f"{case}-{world_size}").read_text() for world_size in WORLD_SIZES}
    assert len(set(found.values())) == 1, found


def test_p5_the_cases_differ(folder: Path) -> None:
    assert len({(folder / f"{case}-1").read_text() for case in CASES}) == len(CASES)

"""The segmentation with several workers: the same bits for any number of them with `exact`, the same losses but for rounding with `ddp`."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from groups import run_processes
from versions import write_version

from pipelines.config.segmentation import SegmentationSettings
from pipelines.config.train import Train
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import open_version
from pipelines.runtime.weights import model_digest
from pipelines.tasks.base import Data
from pipelines.tasks.segmentation import Segmentation
from pipelines.train.evaluate import Evaluation
from pipelines.train.mesh import Mesh
from pipelines.train.reduce.context import WorkerContext
from pipelines.train.step_statistics import Flags
from pipelines.train.strategies import create_strategy

CASES = {"exact": {"strategy": "exact"}, "ddp": {"strategy": "ddp"}, "ddp, accumulated": {"strategy": "ddp", "grad_accum_steps": 2}}
SIZES = (1, 2)
COLUMNS = (
    TensorColumn(name="image", dtype="uint8", shape=(1, 16, 12)),
    TensorColumn(name="mask", dtype="uint8", shape=(16, 12), role="target", cardinality=3),
)


def segmentation() -> Segmentation:
    augmented = {"patch": (8, 12), "patches_per_row": 2, "flips": (0, 1), "elastic": 1.0, "jitter": 0.3}
    return Segmentation(SegmentationSettings.model_validate({"width": 4, "depth": 2, **augmented}), Data(COLUMNS, ("a", "b", "c")))


def train_all(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    for case in CASES:
        for world_size in SIZES:
            if rank < world_size:
                rendezvous = f"file://{folder}/rendezvous-{case}-{world_size}"
                dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world_size)
                train(WorkerContext(rank, world_size), folder, case)
                dist.destroy_process_group()


def train(context: WorkerContext, folder: str, case: str) -> None:
    """One epoch; worker 0 writes the weights' digest, the losses of all steps, and the metrics of the validation."""
    settings = Train.model_validate({"shards": 4, "global_batch": 8, "remainder": "keep", "lr": 0.01, **CASES[case]})
    torch.manual_seed(0)
    task, version = segmentation(), open_version(f"{folder}/version")
    strategy = create_strategy(settings, task, context)
    order = Order(settings.shards, settings.global_batch, settings.seed, remainder=settings.remainder)
    loader = Loader(version, "train", order, Mesh(context).worker_shards(settings.shards), row_keys=task.draws)
    losses = []
    for number, batch in enumerate(strategy.batches(loader)):
        result = strategy.step(batch, number, 0.01, Flags())
        losses.append(float(result.loss_sum / result.weight))
    metrics = Evaluation(settings, version, "validation", task, strategy)() or {}
    if context.rank == 0:
        np.save(f"{folder}/{case}-{context.world_size}.npy", np.array([*losses, *(float(value) for value in metrics.values())]))
        Path(f"{folder}/{case}-{context.world_size}").write_text(model_digest(strategy.model.state_dict()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("workers")
    masks = random.integers(0, 3, (45, 16, 12)).astype(np.uint8)
    rows = {"image": (masks[:, None] * 60 + random.integers(0, 50, (45, 1, 16, 12))).astype(np.uint8), "mask": masks}
    splits = {"train": [{name: values[:35] for name, values in rows.items()}]}
    splits["validation"] = [{name: values[35:] for name, values in rows.items()}]
    write_version(folder / "version", splits, target="mask", cardinality={"mask": 3})
    run_processes(max(SIZES), train_all, str(folder))
    return folder


def test_p5_exact_has_the_same_bits_for_one_worker_and_two(folder: Path) -> None:
    first, second = ((folder / f"exact-{size}").read_text() for size in SIZES)
    assert first == second
    assert np.array_equal(*(np.load(folder / f"exact-{size}.npy") for size in SIZES))


@pytest.mark.parametrize("case", ["ddp", "ddp, accumulated"])
def test_ddp_has_the_same_losses_and_metrics_for_one_worker_and_two(folder: Path, case: str) -> None:
    first, second = (np.load(folder / f"{case}-{size}.npy") for size in SIZES)
    assert len(first) > 10
    np.testing.assert_allclose(first, second, rtol=5e-3)


def test_passes_of_a_step_change_its_loss_by_rounding_alone(folder: Path) -> None:
    undivided, accumulated = (np.load(folder / f"{case}-1.npy") for case in ("ddp", "ddp, accumulated"))
    np.testing.assert_allclose(undivided, accumulated, rtol=5e-3)

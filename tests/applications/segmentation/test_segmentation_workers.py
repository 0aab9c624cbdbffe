"""The segmentation with several workers: the same bits for any number of them with `exact`, the same losses but for rounding with `ddp`."""

from pathlib import Path

import numpy as np
import pytest
from groups import run_processes
from picture_workers import SIZES, train_all
from versions import write_version

from pipelines.applications.segmentation.settings import SegmentationSettings
from pipelines.applications.segmentation.task import Segmentation
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Data

COLUMNS = (
    TensorColumn(name="image", dtype="uint8", shape=(1, 16, 12)),
    TensorColumn(name="mask", dtype="uint8", shape=(16, 12), role="target", cardinality=3),
)


def segmentation() -> Segmentation:
    augmented = {"patch": (8, 12), "patches_per_row": 2, "flips": (0, 1), "elastic": 1.0, "jitter": 0.3}
    return Segmentation(SegmentationSettings.model_validate({"width": 4, "depth": 2, **augmented}), Data(COLUMNS, ("a", "b", "c")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("workers")
    masks = random.integers(0, 3, (45, 16, 12)).astype(np.uint8)
    rows = {"image": (masks[:, None] * 60 + random.integers(0, 50, (45, 1, 16, 12))).astype(np.uint8), "mask": masks}
    splits = {"train": [{name: values[:35] for name, values in rows.items()}]}
    splits["validation"] = [{name: values[35:] for name, values in rows.items()}]
    write_version(folder / "version", splits, target="mask", cardinality={"mask": 3})
    run_processes(max(SIZES), train_all, str(folder), segmentation)
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

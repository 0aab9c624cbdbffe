"""The detection with several workers: the same bits for any number of them with `exact`, the same losses
but for rounding with `ddp`."""

from pathlib import Path

import numpy as np
import pytest
from groups import run_processes
from picture_workers import SIZES, train_all
from versions import write_version

from pipelines.applications.detection.settings import DetectionSettings
from pipelines.applications.detection.task import Detection
from pipelines.data.versions.schema import TensorColumn
from pipelines.tasks.base import Data

COLUMNS = (
    TensorColumn(name="image", dtype="uint8", shape=(3, 24, 32)),
    TensorColumn(name="boxes", dtype="float32", shape=(4, 5), role="target"),
)


def detection() -> Detection:
    augmented = {"flips": (0, 1), "zoom": 0.4, "jitter": 0.3}
    return Detection(DetectionSettings.model_validate({"width": 4, "stages": 2, "head": 8, **augmented}), Data(COLUMNS, ("a", "b")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("workers")
    low, size = random.integers(0, 5, (45, 4, 2)), random.integers(16, 20, (45, 4, 2))
    boxes = np.concatenate([random.integers(-1, 2, (45, 4, 1)), low, low + size], axis=2).astype(np.float32)
    rows = {"image": random.integers(0, 256, (45, 3, 24, 32)).astype(np.uint8), "boxes": boxes}
    splits = {"train": [{name: values[:35] for name, values in rows.items()}]}
    splits["validation"] = [{name: values[35:] for name, values in rows.items()}]
    write_version(folder / "version", splits, target="boxes")
    run_processes(max(SIZES), train_all, str(folder), detection)
    return folder


def test_p5_exact_has_the_same_bits_for_one_worker_and_two(folder: Path) -> None:
    first, second = ((folder / f"exact-{size}").read_text() for size in SIZES)
    assert first == second
    assert np.array_equal(*(np.load(folder / f"exact-{size}.npy") for size in SIZES))


@pytest.mark.parametrize("case", ["ddp", "ddp, accumulated"])
def test_ddp_has_the_same_losses_for_one_worker_and_two(folder: Path, case: str) -> None:
    first, second = (np.load(folder / f"{case}-{size}.npy") for size in SIZES)
    assert len(first) == 10 and (first > 0).all()
    np.testing.assert_allclose(first[:6], second[:6], rtol=5e-3)

"""Folders of plain Parquet and arrays are dataset versions without ETL."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines import api
from pipelines.data.loader import Order
from pipelines.errors import ConfigError, CorruptError, DatasetError
from pipelines.tracking import training

DRAW = np.random.default_rng(0)


def rows(count: int) -> dict[str, np.ndarray]:
    """Two numbers, and whether the first is greater."""
    x, z = DRAW.normal(size=(2, count)).astype("float32")
    return {"x": x, "z": z, "y": (x > z).astype("uint8")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as another program writes it."""
    for split, count in {"train": 900, "validation": 100, "split=test": 100}.items():
        (tmp_path / "plain" / split).mkdir(parents=True)
        for part in range(2):
            pq.write_table(pa.table(rows(count // 2)), tmp_path / "plain" / split / f"{part}.parquet", row_group_size=200)
    return tmp_path / "plain"


def test_folders_are_splits_and_the_loader_reads_them(folder: Path) -> None:
    version = api.from_parquet(folder, target="y", classes=2)
    assert {split: version.rows(split) for split in ("train", "validation", "test")} == {"train": 900, "validation": 100, "test": 100}
    loader = api.open_loader(version, "train", Order(global_batch=64, remainder="keep"))
    batches = list(loader)
    assert sum(len(batch["y"]) for batch in batches) == 900 and all(
        ((batch["x"] > batch["z"]) == (batch["y"] == 1)).all() for batch in batches
    )
    assert len(next(iter(api.open_loader(version)))["x"]) == 512


def test_a_version_has_a_config_that_takes_columns_as_they_are(folder: Path) -> None:
    version = api.from_parquet(folder, target="y", classes=2)
    config = api.config_for_version(version, "plain", task={"kind": "tabular", "hidden": [8]}, train={"epochs": 2})
    assert config.train.epochs == 2 and list(config.dataset.features) == ["x", "z"] and list(config.dataset.target) == ["y"]
    with pytest.raises(ConfigError, match=r"api.Config: train.lr: must be greater than 0 \(got -1\)"):
        api.config_for_version(version, "plain", train={"lr": -1})


def one_file(folder: Path, values: np.ndarray) -> Path:
    """A folder with these values in rows of one file, whose size does not depend on them."""
    folder.mkdir(exist_ok=True)
    columns = {"x": values, "y": np.zeros(len(values), "uint8")}
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=100, compression="none", use_dictionary=False)
    return folder


def test_the_digest_of_plain_parquet_shows_other_values_of_equal_shape(tmp_path: Path) -> None:
    values = np.arange(300, dtype=np.float32)
    version = api.from_parquet(one_file(tmp_path / "plain", values), target="y", classes=2)
    size = (tmp_path / "plain" / "rows.parquet").stat().st_size
    shutil.copytree(tmp_path / "plain", tmp_path / "copy")
    assert api.from_parquet(tmp_path / "copy", target="y", classes=2).digest == version.digest
    rewritten = api.from_parquet(one_file(tmp_path / "plain", values + 1), target="y", classes=2)
    assert (tmp_path / "plain" / "rows.parquet").stat().st_size == size and rewritten.digest != version.digest
    (tmp_path / "copy" / "rows.parquet").rename(tmp_path / "copy" / "others.parquet")
    assert api.from_parquet(tmp_path / "copy", target="y", classes=2).digest != version.digest


def test_a_training_on_plain_parquet_is_not_resumed_on_other_values(tmp_path: Path) -> None:
    values = np.arange(300, dtype=np.float32)
    version = api.from_parquet(one_file(tmp_path / "plain", values), target="y", classes=2)
    config = api.config_for_version(version, "plain", train={"epochs": 2})
    rewritten = api.from_parquet(one_file(tmp_path / "plain", values + 1), target="y", classes=2)
    assert training.training_identity(config, version) != training.training_identity(config, rewritten)


def test_plain_parquet_that_is_replaced_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    values = np.arange(300, dtype=np.float32)
    version = api.from_parquet(one_file(tmp_path / "plain", values), target="y", classes=2)
    one_file(tmp_path / "plain", values + 1)
    remedy = r"footer's bytes have the checksum .* when they were written; restore the file, or open the folder again"
    with pytest.raises(CorruptError, match=remedy):
        list(api.open_loader(version, "train", Order(global_batch=96)))
    version = api.from_parquet(tmp_path / "plain", target="y", classes=2)
    assert len(list(api.open_loader(version, "train", Order(global_batch=96)))) == 3


def test_arrays_become_a_version_on_disk(tmp_path: Path) -> None:
    splits = {"train": rows(300), "validation": rows(50)}
    version = api.write_arrays(tmp_path / "arrays", splits, target="y", classes=2)
    assert version.rows("train") == 300 and version.manifest.target.cardinality == 2
    assert api.write_arrays(tmp_path / "arrays", splits, target="y", classes=2).digest == version.digest
    html = version.manifest._repr_html_()
    assert "<td>train</td><td>300 rows</td>" in html and "x (identity), z (identity), y (identity)" in html
    with pytest.raises(DatasetError):
        api.write_arrays(tmp_path / "arrays", {"train": rows(300)}, target="y", classes=2)
    images = {"train": {"pixels": np.zeros((10, 4, 4), "uint8"), "y": np.zeros(10, "int64")}}
    assert api.write_arrays(tmp_path / "images", images, target="y").manifest.encoders["pixels"].column.shape == (4, 4)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({}, "splits are none; name arrays by train, validation, test"),
        ({"dev": rows(2)}, "splits are dev; name arrays by train, validation, test"),
        ({"train": {"x": np.zeros(2)}}, "the target y is no column of the arrays, which are x; name one of these"),
        ({"train": rows(3), "test": {"y": np.zeros(3)}}, "the columns of test differ from those of train; give them equal names, dtypes"),
        ({"train": {"x": np.zeros(2), "y": np.zeros(3)}}, "the columns of train have different numbers of rows; cut them to one length"),
    ],
)
def test_arrays_that_are_no_splits_are_refused_in_a_line(tmp_path: Path, splits: dict, message: str) -> None:
    with pytest.raises(DatasetError) as error:
        api.write_arrays(tmp_path / "arrays", splits, target="y")
    assert message in str(error.value) and not (tmp_path / "arrays").exists()


def test_arrays_of_a_type_that_no_tensor_has_are_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"column y is complex128; a tensor column is one of float32, ") as error:
        api.write_arrays(tmp_path / "arrays", {"train": {"y": np.zeros(2, complex)}}, target="y")
    assert "\n" not in str(error.value) and not (tmp_path / "arrays").exists()

"""Versions on an S3-compatible store: written, read, and refused clearly when the store stays away."""

from pathlib import Path

import numpy as np
import pytest
from moto.server import ThreadedMotoServer
from versions import write_version

from pipelines.data.loader import Loader, Order
from pipelines.data.versions import storage
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import DatasetError


@pytest.fixture
def uri(store_options: str, request: pytest.FixtureRequest) -> str:
    uri = f"s3://lockstep/{request.node.name}?{store_options}"
    filesystem, _ = storage.locate(uri)
    filesystem.create_dir("lockstep")
    return uri


@pytest.fixture
def version(uri: str) -> Version:
    rows = {"x": np.arange(5_000, dtype=np.float32), "label": np.arange(5_000)}
    return write_version(uri, {"train": [rows]}, row_group_bytes=2**13)


def test_p8_a_version_on_a_store_is_read_like_a_local_one(version: Version, uri: str, tmp_path: Path) -> None:
    rows = {"x": np.arange(5_000, dtype=np.float32), "label": np.arange(5_000)}
    local = write_version(str(tmp_path), {"train": [rows]}, row_group_bytes=2**13)
    order = Order(global_batch=512, remainder="keep")
    remote_batches = [batch["label"].tolist() for batch in Loader(open_version(uri), "train", order)]
    assert local.digest == version.digest
    assert remote_batches == [batch["label"].tolist() for batch in Loader(local, "train", order)]


def test_p8_a_version_on_a_store_is_created_once(version: Version) -> None:
    assert not storage.create(version.filesystem, f"{version.root}/manifest.json", b"other")


def test_a_missing_part_on_a_store_is_named(version: Version) -> None:
    version.filesystem.delete_file(f"{version.root}/{version.row_groups[0].file}")
    with pytest.raises(DatasetError, match=r"part-00000.parquet, row group \d: the file is missing"):
        list(Loader(version, "train", Order(global_batch=512)))


@pytest.mark.full
def test_a_store_that_stays_away_is_a_clear_error(version: Version, store: ThreadedMotoServer) -> None:
    store.stop()
    with pytest.raises(DatasetError, match=r"the store did not answer, asked up to 5 times"):
        list(Loader(version, "train", Order(global_batch=512)))
    store.start()

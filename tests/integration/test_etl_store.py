"""A version that ETL writes to an S3-compatible store instead of a disk."""

from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from people import write_pipeline
from pyarrow.fs import FileType
from pyspark.sql import SparkSession
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.versions import storage
from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.versions import open_version
from pipelines.errors import DatasetError
from pipelines.etl.run import run


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    return write_pipeline(tmp_path, new_store(tmp_path))


@pytest.fixture
def config(pipeline: Path, store_options: str, spark: SparkSession) -> Config:
    """With a dataset on the store."""
    uri = f"s3://lockstep/people?{store_options}"
    storage.locate(uri)[0].create_dir("lockstep")
    return load(pipeline, {"dataset.path": uri})


def test_p1_a_version_on_a_store_has_the_local_one_s_digest_and_no_other_files(config: Config, pipeline: Path) -> None:
    manifest = run(config)
    assert manifest.digest == run(load(pipeline)).digest
    assert run(config) == manifest, "it is there"
    version = open_version(config.dataset.path, config.data_identity)
    entries = storage.entries(version.filesystem, version.root, recursive=True)
    paths = {entry.path.removeprefix(f"{version.root}/") for entry in entries if entry.type == FileType.File}
    written = {group.file for group in version.row_groups} | {
        "manifest.json",
        *(f"{kind}-{manifest.attempt}.parquet" for kind in ("row_groups", "sources")),
    }
    folders = (f"quarantine-{manifest.attempt}/", f"rows-{manifest.attempt}/", f"keys-{manifest.attempt}/")
    assert {path for path in paths if not path.startswith(folders)} == written
    raw = read_raw_rows(version.filesystem, version.root, version.parts("test"), [0, 1])
    assert raw is not None and len(raw) == 2


@pytest.mark.full
def test_a_store_that_is_away_is_a_clear_error(config: Config, store: ThreadedMotoServer) -> None:
    store.stop()
    try:
        with pytest.raises(
            DatasetError, match=r"lockstep/people/\w+ cannot be read or written: .*; mend that, and run the same command again"
        ):
            run(config)
    finally:
        store.start()

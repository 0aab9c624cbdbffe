"""jobs/etl.py as a process: on any number of cores, twice at once, and killed."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from people import write_pipeline

from pipelines.dataset.manifest import Manifest
from pipelines.dataset.versions import open_version, versions
from pipelines.errors import DatasetError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('tracking')}/mlflow.db"


def start(pipeline: Path, master: str = "local[2]", **settings: str) -> "subprocess.Popen[str]":
    """The job, in a process group of its own."""
    flags = [part for key, value in settings.items() for part in ("--conf", f"{key.replace('_', '.')}={value}")]
    submit = ["--master", master, "--conf", "spark.ui.enabled=false", "--driver-memory", "1g", *flags, "pyspark-shell"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_SUBMIT_ARGS": " ".join(submit)}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    return subprocess.Popen(
        [sys.executable, "jobs/etl.py", str(pipeline)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(job: "subprocess.Popen[str]") -> str:
    """What it printed, once it has ended well."""
    printed, errors = job.communicate(timeout=240)
    assert job.returncode == 0, errors
    return printed


def content(folder: Path) -> tuple[Manifest, dict[tuple[str, int], str]]:
    """The only version's manifest, and the SHA-256 of its parts' bytes by split and part."""
    ((root, manifest),) = versions(str(folder))
    groups = open_version(root).row_groups
    parts = {(group.split, group.part): hashlib.sha256(Path(root, group.file).read_bytes()).hexdigest() for group in groups}
    return manifest, parts


@pytest.mark.timeout(600)
def test_p6_equal_rows_make_equal_bytes_on_any_cores_with_any_partitions_from_any_files(tmp_path: Path, uri: str) -> None:
    found = []
    for master, partitions, files in (("local[1]", "200", 1), ("local[2]", "3", 4), ("local[4]", "7", 3)):
        folder = tmp_path / master
        folder.mkdir()
        finished(
            start(
                write_pipeline(folder, uri, files),
                master,
                spark_sql_shuffle_partitions=partitions,
                spark_sql_files_maxPartitionBytes="20000",
            )
        )
        found.append(content(folder / "data"))
    (first, parts), *others = found
    assert len(parts) > 8 and len({manifest.version for manifest, _ in found}) == 3
    for manifest, other_parts in others:
        assert manifest.digest == first.digest
        assert {name: encoded.state for name, encoded in manifest.encoders.items()} == {
            name: encoded.state for name, encoded in first.encoders.items()
        }
        assert manifest.profile == first.profile and manifest.quarantined == first.quarantined
        assert other_parts == parts


@pytest.mark.timeout(600)
def test_p8_two_runs_at_once_make_one_version(tmp_path: Path, uri: str) -> None:
    pipeline = write_pipeline(tmp_path, uri)
    one, other = start(pipeline, "local[1]"), start(pipeline, "local[1]")
    assert finished(one) == finished(other)
    manifest, parts = content(tmp_path / "data")
    assert {path.name for path in (tmp_path / "data" / manifest.version).iterdir()} == {
        "manifest.json",
        *(f"{kind}-{manifest.attempt}" for kind in ("data", "quarantine")),
        f"row_groups-{manifest.attempt}.parquet",
    }
    assert len(parts) > 8


@pytest.mark.timeout(600)
@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGINT])
def test_p8_a_killed_attempt_leaves_no_version_and_the_next_one_makes_it(tmp_path: Path, uri: str, death: signal.Signals) -> None:
    pipeline = write_pipeline(tmp_path, uri)
    job = start(pipeline)
    while not list(tmp_path.glob("data/*/quarantine-*/*")):
        assert job.poll() is None, job.communicate()[1]
        time.sleep(0.02)
    os.killpg(job.pid, death)
    _, errors = job.communicate(timeout=120)
    assert job.returncode != 0
    with pytest.raises(DatasetError, match="holds no dataset version"):
        open_version(str(tmp_path / "data"))
    left = list(tmp_path.glob("data/*/quarantine-*"))
    assert bool(left) == (death == signal.SIGKILL), errors
    finished(start(pipeline))
    assert content(tmp_path / "data")[0].rows_parsed == 3_000

"""jobs/etl.py as a process: on any number of cores, twice at once, and killed."""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import small_file_system
from people import ROWS, write_pipeline
from pyspark.sql import SparkSession
from waiting import wait_until

from pipelines.config import load
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version, versions
from pipelines.errors import DatasetError
from pipelines.etl.run import run

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


def finish(job: "subprocess.Popen[str]") -> str:
    """Wait until the job has ended well, and return what it printed."""
    printed, errors = job.communicate(timeout=500)
    assert job.returncode == 0, errors
    return printed


def content(folder: Path) -> tuple[Manifest, dict[tuple[str, int], str]]:
    """The only version's manifest, and the SHA-256 of its parts' bytes by split and part."""
    ((root, manifest),) = versions(str(folder))
    groups = open_version(root).row_groups
    parts = {(group.split, group.part): hashlib.sha256(Path(root, group.file).read_bytes()).hexdigest() for group in groups}
    return manifest, parts


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, uri: str) -> Path:
    """The folder of a dataset that the tests' session makes, on two cores."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(load(write_pipeline(folder, uri)))
    return folder / "data"


@pytest.mark.full
def test_p8_two_runs_at_once_make_one_version(tmp_path: Path, uri: str, undisturbed: Path) -> None:
    """They cannot both be first."""
    jobs = [start(write_pipeline(tmp_path, uri), "local[1]") for _ in range(2)]
    printed = [finish(job) for job in jobs]
    assert printed[0] == printed[1]
    manifest, parts = content(tmp_path / "data")
    assert parts == content(undisturbed)[1]
    assert {path.name for path in (tmp_path / "data" / manifest.version).iterdir()} == {
        "manifest.json",
        *(f"{kind}-{manifest.attempt}" for kind in ("data", "quarantine", "rows", "keys")),
        *(f"{kind}-{manifest.attempt}.parquet" for kind in ("row_groups", "sources")),
    }
    assert len(parts) > 8


def assert_same_content(folder: Path, first: Path) -> None:
    """A version has the other's bytes, though it was made from other files."""
    (manifest, parts), (expected, expected_parts) = content(folder), content(first)
    assert manifest.version != expected.version and manifest.digest == expected.digest
    assert manifest.encoders == expected.encoders
    assert manifest.profile == expected.profile and manifest.quarantined == expected.quarantined
    assert parts == expected_parts


def test_p6_p8_a_killed_attempt_leaves_no_version_and_the_next_one_makes_equal_bytes_on_any_cores_with_any_partitions_from_any_files(
    tmp_path: Path, uri: str, undisturbed: Path
) -> None:
    pipeline = write_pipeline(tmp_path, uri, files=4)
    job = start(pipeline)

    def writes() -> bool:
        assert job.poll() is None, job.communicate()[1]
        return any(tmp_path.glob("data/*/quarantine-*/*"))

    wait_until(writes, "a file of the quarantine", 240, pause_seconds=0.02)
    os.killpg(job.pid, signal.SIGKILL)
    assert job.wait(120) != 0
    assert list(tmp_path.glob("data/*/quarantine-*"))
    with pytest.raises(DatasetError, match="holds no dataset version"):
        open_version(str(tmp_path / "data"))
    finish(start(pipeline, "local[4]", spark_sql_shuffle_partitions="7", spark_sql_files_maxPartitionBytes="20000"))
    assert content(tmp_path / "data")[0].rows_parsed == ROWS
    assert_same_content(tmp_path / "data", undisturbed)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 KB."""
    with small_file_system(tmp_path / "small") as folder:
        yield folder


@pytest.mark.full
@pytest.mark.usefixtures("undisturbed")
def test_a_full_disk_is_told_in_a_line(small_disk: Path, tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a message of Java for each file. With room for its files, the same pipeline has made a version above."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(small_disk))
    printed, errors = (job := start(write_pipeline(tmp_path, uri))).communicate(timeout=500)
    assert job.returncode == DatasetError.exit_code, errors
    complaints = [
        line for line in errors.splitlines() if "space" in line or "Exception" in line or line.startswith(("error", "\tat ", "Traceback"))
    ]
    remedy = "point SPARK_LOCAL_DIRS to a larger one, on a cluster that of its workers"
    assert complaints == [f"error: no space left on {small_disk}, where Spark shuffles; {remedy}"]
    assert not printed and not list(tmp_path.glob("data/*"))

"""Folders of many files are listed and hashed in Spark's tasks, with the same result as on the driver."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipelines.data.sources import base
from pipelines.data.sources.base import LOCAL_ROWS, distribute
from pipelines.data.sources.files import file_table, files
from pipelines.data.sources.files.file_table import checksums, find_in_tasks, stats
from pipelines.data.sources.files.files import Search
from pipelines.data.sources.files.listing import Files


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files in 60 folders at several depths, hidden ones, folders of columns, and an empty folder."""
    for number in range(60):
        folder = tmp_path / "raw" / f"part={number % 3}" / f"{number:02}" / ("deep/é" if number % 2 else "")
        folder.mkdir(parents=True)
        for name in ("a.csv", "b.json", ".hidden", "_SUCCESS"):
            (folder / name).write_text(f"{number} {name}")
    (tmp_path / "raw/part=1/empty").mkdir()
    (tmp_path / "raw/top.csv").write_text("top")
    return tmp_path / "raw"


def find_by_tasks(path: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Files, int]:
    """The files of a path, and how many folders Spark's tasks listed."""
    listed: list[str] = []

    def counting(search: Search, folders: list[str]) -> pa.Table | None:
        listed.extend(folders)
        return find_in_tasks(search, folders)

    monkeypatch.setattr(files, "MANY_ENTRIES", 0)
    return files.find(path, counting), len(listed)


@pytest.mark.parametrize("pattern", ["", "/**/*.csv", "/part=[01]/*/a.csv", "/{part=0,part=2}/**/b*"])
def test_files_that_tasks_list_are_those_that_the_driver_lists(
    spark: SparkSession, tree: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{tree}{pattern}"
    on_driver = files.find(path)
    in_tasks, folders = find_by_tasks(path, monkeypatch)
    assert in_tasks == on_driver and len(on_driver) >= 20
    assert (folders > 0) == (pattern != "/part=[01]/*/a.csv"), "a glob without ** lists only the folders that it can match"


@pytest.mark.usefixtures("spark")
def test_a_folder_that_is_gone_holds_nothing_and_without_a_session_the_driver_lists(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = find_in_tasks(Search(str(tree), str(tree), is_folder=True), [f"{tree}/part=1/empty", f"{tree}/gone"])
    assert below is not None and not len(below)
    expected = files.find(str(tree))
    monkeypatch.setattr(files, "MANY_ENTRIES", 0)
    assert files.find(str(tree), lambda search, folders: None) == expected


def test_checksums_of_tasks_are_those_of_the_driver(spark: SparkSession, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = files.find(str(tree))
    expected = [(file.path, file.bytes, f"sha256:{sha256(Path(file.path).read_bytes()).hexdigest()}") for file in listing]
    on_driver = checksums(spark, listing)
    monkeypatch.setattr(file_table, "DRIVER_BYTES", 0)
    monkeypatch.setattr(base, "CLOSURE_BYTES", 0)
    monkeypatch.setattr(file_table, "FILES_PER_JOB", 50)
    for listed in (on_driver, checksums(spark, listing)):
        assert [(file.path, file.bytes, file.checksum) for file in listed] == expected
    assert [file.path for file in stats(listing)] == [file.path for file in listing]
    assert len({file.checksum for file in stats(listing)}) > 1


@pytest.mark.parametrize("closure_bytes", [0, 2**20])
def test_each_item_of_work_has_a_task_of_its_own(spark: SparkSession, closure_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_batch(item: dict[str, int]) -> Iterator[pa.RecordBatch]:  # a local function travels by value
        yield pa.record_batch({"value": [item["value"]]})

    monkeypatch.setattr(base, "CLOSURE_BYTES", closure_bytes)
    before = spark.conf.getAll
    rows = distribute(spark, [{"value": number} for number in range(9)], one_batch, "value long")
    assert rows.rdd.getNumPartitions() == 9 and [row.value for row in rows.collect()] == [*range(9)]
    assert distribute(spark, [], one_batch, "value long").collect() == []
    assert spark.conf.getAll == before and spark.conf.get(LOCAL_ROWS)

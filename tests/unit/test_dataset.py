"""A version is there whole or not at all, and is opened only as it was written."""

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileInfo, FileSystem, LocalFileSystem
from versions import write_version

from pipelines.data.loader import Loader, Order
from pipelines.data.versions import storage
from pipelines.data.versions.commit import commit, find_dead_attempts, remove_debris, row_groups_path, write_index
from pipelines.data.versions.plain import open_parquet
from pipelines.data.versions.raw_inputs import SourceFile
from pipelines.data.versions.schema import TensorColumn, from_numpy, schema_from_text, schema_to_text, to_numpy
from pipelines.data.versions.storage import checksum, seal, unseal
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import CorruptError, DatasetError, OutdatedError
from pipelines.etl import run as etl
from pipelines.serving.batch import predict_tables
from pipelines.spark.stages import Stages


@pytest.fixture
def version(tmp_path: Path) -> Version:
    rows = {"x": np.linspace(0, 1, 3_000, dtype=np.float32), "label": np.arange(3_000)}
    return write_version(tmp_path, {"train": [rows]}, row_group_bytes=2**13)


def edit_manifest(version: Version, **changes: object) -> None:
    """As somebody who means it: with a new seal."""
    path = Path(version.root) / "manifest.json"
    values, _ = unseal(path.read_bytes())
    path.write_bytes(seal({**values, **changes}))


def test_p6_the_digest_is_of_the_rows_not_of_the_files(version: Version, tmp_path: Path) -> None:
    rows = {"x": np.linspace(0, 1, 3_000, dtype=np.float32), "label": np.arange(3_000)}
    assert write_version(tmp_path / "again", {"train": [rows]}, row_group_bytes=2**13).digest == version.digest
    rows["x"] = np.nextafter(rows["x"], np.float32(2))
    assert write_version(tmp_path / "other", {"train": [rows]}, row_group_bytes=2**13).digest != version.digest


def test_p8_the_second_of_two_equal_commits_removes_its_own_files(version: Version) -> None:
    root = Path(version.root)
    (root / "data-b/split=train").mkdir(parents=True)
    (root / "data-b/split=train/part-00000.parquet").write_bytes((root / version.row_groups[0].file).read_bytes())
    groups = [replace(group, file=group.file.replace("data-a", "data-b")) for group in version.row_groups]
    second = version.manifest.model_copy(update={"attempt": "b"})
    assert commit(version.filesystem, version.root, second, groups).attempt == "a"
    assert sorted(entry.name for entry in root.iterdir()) == ["data-a", "manifest.json", "row_groups-a.parquet"]


def test_p6_equal_inputs_with_unequal_rows_are_an_error(version: Version) -> None:
    other = version.manifest.model_copy(update={"attempt": "b", "digest": "0" * 64})
    with pytest.raises(DatasetError, match=r"the query is not deterministic, or a source changed"):
        commit(version.filesystem, version.root, other, [])
    assert open_version(version.root).digest == version.digest


def test_p8_files_that_no_collected_task_named_are_removed(tmp_path: Path, version: Version) -> None:
    root = Path(version.root)
    (root / "manifest.json").unlink()
    retried = root / "data-a/split=train/part-00000-retried.parquet"
    retried.write_bytes(b"half a part")
    commit(version.filesystem, version.root, version.manifest, version.row_groups)
    assert not retried.exists()
    assert open_version(version.root).rows("train") == 3_000


def test_p6_a_version_lists_the_files_it_was_made_of_beside_its_manifest(version: Version) -> None:
    root, count = Path(version.root), 10_000
    without = (root / "manifest.json").read_bytes()
    assert version.sources() == {}
    (root / "manifest.json").unlink()
    files = tuple(SourceFile(f"/raw/{number}\n.jpg", number, f"sha256:{number:064x}") for number in range(count))
    committed = commit(
        version.filesystem, version.root, version.manifest, version.row_groups, sources={"images": files, "labels": files[:1]}
    )
    assert (committed.sources["images"].files, committed.sources["images"].bytes) == (count, sum(range(count)))
    assert len((root / "manifest.json").read_bytes()) < len(without) + 1_000
    reopened, listed = open_version(version.root), root / "sources-a.parquet"
    assert reopened.sources() == {"images": files, "labels": files[:1]}
    pq.write_table(pq.read_table(listed).slice(1), listed)
    with pytest.raises(CorruptError, match=r"sources-a.parquet has sha256:.*; the manifest says sha256:"):
        reopened.sources()
    listed.unlink()
    with pytest.raises(CorruptError, match=r"sources-a.parquet is missing"):
        reopened.sources()
    assert open_version(version.root).rows("train") == 3_000, "which training does without"


def test_p8_only_old_debris_of_other_attempts_is_removed(version: Version) -> None:
    root = Path(version.root)
    for attempt, age_seconds in (("old", 90_000), ("young", 60)):
        (root / f"data-{attempt}").mkdir()
        written = [root / name for name in (f"data-{attempt}/part.parquet", f"row_groups-{attempt}.parquet", f"sources-{attempt}.parquet")]
        for path in written:
            path.write_bytes(b"")
        for path in (*written, root / f"data-{attempt}"):
            os.utime(path, (time.time() - age_seconds,) * 2)
    remove_debris(version.filesystem, str(Path(version.root).parent))
    assert {entry.name for entry in root.iterdir()} == {
        *("manifest.json", "data-a", "row_groups-a.parquet"),
        *("data-young", "row_groups-young.parquet", "sources-young.parquet"),
    }


class StoreWithoutFolders:
    """Files with their times, and folders without one, as Arrow lists them on S3."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem

    def get_file_info(self, selection: Any) -> Any:
        entries = self._filesystem.get_file_info(selection)
        if isinstance(entries, list):
            return [entry if entry.is_file else FileInfo(entry.path, entry.type) for entry in entries]
        return entries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)


def test_p8_dead_attempts_are_found_where_folders_have_no_time(tmp_path: Path) -> None:
    for attempt, age_seconds in (("old", 90_000), ("young", 60)):
        part = tmp_path / f"data-{attempt}" / "split=train" / "part.parquet"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"")
        os.utime(part, (time.time() - age_seconds,) * 2)
    (tmp_path / "quarantine-empty").mkdir()
    store: Any = StoreWithoutFolders(LocalFileSystem())
    assert find_dead_attempts(store, str(tmp_path), []) == ["old"]


def write_child(version: Version) -> Path:
    """Write a version with the parts of another one. Returns the file of its index."""
    root = Path(version.root)
    child = root.with_name("c" * 12)
    child.mkdir()
    shared = [replace(group, file=f"../{root.name}/{group.file}") for group in version.row_groups]
    write_index(version.filesystem, str(child), "b", shared)
    (child / "manifest.json").write_bytes(seal({**version.manifest.model_dump(mode="json"), "attempt": "b"}))
    return Path(row_groups_path(str(child), "b"))


def test_the_remedy_for_a_version_that_others_share_names_these_too(version: Version) -> None:
    child = write_child(version).parent
    other = version.manifest.model_copy(update={"attempt": "c", "digest": "f" * 64})
    with pytest.raises(DatasetError, match=f"and remove {version.root}, {child} to take the new rows"):
        commit(version.filesystem, version.root, other, version.row_groups)


def test_p8_parts_that_another_version_refers_to_are_no_debris(version: Version, caplog: pytest.LogCaptureFixture) -> None:
    """Its index says so, although the manifest beside the parts is gone. While it cannot be read, nothing is removed."""
    root = Path(version.root)
    index, debris, part = write_child(version), root / "data-dead/part.parquet", root / version.row_groups[0].file
    (root / "manifest.json").unlink()
    debris.parent.mkdir()
    debris.write_bytes(b"")
    content = index.read_bytes()
    index.write_bytes(content[:100])
    remove_debris(version.filesystem, str(root.parent), age_seconds=0)
    assert debris.exists() and part.exists() and "cannot be read" in caplog.text and "; restore the file" in caplog.text
    index.write_bytes(content)  # restored
    (root / "row_groups-killed.parquet").write_bytes(b"PAR1")
    remove_debris(version.filesystem, str(root.parent), age_seconds=0)
    assert part.exists() and {entry.name for entry in root.iterdir()} == {"data-a", "row_groups-a.parquet"}


def test_a_created_file_is_never_overwritten(tmp_path: Path) -> None:
    filesystem, path = storage.locate(str(tmp_path / "folder/once"))
    assert storage.create(filesystem, path, b"first")
    assert not storage.create(filesystem, path, b"second")
    assert Path(path).read_bytes() == b"first"
    assert [entry.name for entry in (tmp_path / "folder").iterdir()] == ["once"]


def test_a_file_system_without_hard_links_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem, folder = storage.locate(str(tmp_path / "datasets"))
    storage.check_creation(filesystem, folder)
    assert not list(Path(folder).iterdir()), "the probe is removed"

    def refuse(*paths: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    nothing: Any = SimpleNamespace(dataset=SimpleNamespace(path=folder), source=None)
    monkeypatch.setattr(etl, "version_name", lambda *inputs: "0" * 12)
    with pytest.raises(DatasetError, match=r"datasets is on a file system without hard links, .*; choose a folder on another"):
        etl._make_version(nothing, nothing, {}, {}, (), Stages(), None, None)
    monkeypatch.setattr(predict_tables, "_settings", lambda *inputs: {})
    source: Any = SimpleNamespace(checksum_files=lambda spark: {}, identity=lambda sources: {})
    with pytest.raises(DatasetError, match=r"datasets is on a file system without hard links"):
        predict_tables._predict(nothing, source, nothing, (), folder, {}, Stages())
    assert not list(Path(folder).iterdir())
    storage.check_creation(storage.locate("s3://bucket/datasets")[0], "bucket/datasets")


def test_without_a_version_the_error_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"holds no dataset version; run jobs/etl.py"):
        open_version(str(tmp_path))


def test_a_version_of_another_config_is_not_opened(version: Version) -> None:
    with pytest.raises(DatasetError, match=r"holds 1 version.s., none made from this config"):
        open_version(str(Path(version.root).parent), identity={"source": "edited"})


def test_what_differs_from_the_newest_version_is_named(version: Version) -> None:
    earlier = {
        "source": {"query": "SELECT 1", "expect": {}},
        "dataset": {"key": ["a"], "features": {"age": {"encoder": "minmax", "bins": 3}}},
    }
    edit_manifest(version, identity=earlier)
    requested = {"source": {"query": "SELECT 2", "expect": {}}, "dataset": {"key": ["a"], "features": {"age": {"encoder": "minmax"}}}}
    with pytest.raises(DatasetError) as caught:
        open_version(str(Path(version.root).parent), identity=requested)
    message = (
        "source.query SELECT 1 where the config has SELECT 2, dataset.features.age.bins 3 where the config has nothing; run jobs/etl.py"
    )
    assert message in str(caught.value) and "dataset.key" not in str(caught.value)
    assert open_version(str(Path(version.root).parent), identity=earlier).root == version.root


def test_a_manifest_of_a_newer_format_names_both(version: Version) -> None:
    edit_manifest(version, format=99)
    with pytest.raises(DatasetError, match=r"has format 99; this version of Lockstep reads format 2: upgrade Lockstep"):
        open_version(version.root)


def test_a_version_of_an_older_format_is_made_again_and_then_passed_over(version: Version, tmp_path: Path) -> None:
    old = tmp_path / ("1" * 12) / "manifest.json"
    old.parent.mkdir()
    old.write_text(json.dumps({**version.manifest.model_dump(mode="json"), "format": 1}))
    with pytest.raises(OutdatedError, match=r"manifest.json has format 1; this version of Lockstep reads format 2: run jobs/etl.py again"):
        open_version(str(old.parent))
    assert open_version(str(tmp_path)).digest == version.digest
    shutil.rmtree(version.root)
    with pytest.raises(OutdatedError, match=r"has format 1"):
        open_version(str(tmp_path))


def test_p8_nothing_is_removed_where_the_manifest_cannot_be_read(version: Version) -> None:
    (Path(version.root) / "manifest.json").write_text("{")
    for path in [*Path(version.root).rglob("*")][::-1]:
        os.utime(path, (time.time() - 90_000,) * 2)
    remove_debris(version.filesystem, str(Path(version.root).parent))
    assert (Path(version.root) / version.row_groups[0].file).exists()


def test_a_manifest_that_lies_about_rows_is_an_error(version: Version) -> None:
    splits = version.manifest.model_dump(mode="json")["splits"]
    splits["train"]["rows"] += 1
    edit_manifest(version, splits=splits)
    with pytest.raises(CorruptError, match=r"has 3000 rows in train; the manifest says 3001"):
        open_version(version.root)


NO_MANIFESTS = {
    "empty": "",
    "cut off": "{",
    "a list": "[]",
    "an empty object": "{}",
    "without a checksum": '{"format": 2}',
    "another type": '{"format": "one"}',
    "deep lists": "[" * 100_000,
    "deep objects": '{"a":' * 100_000,
}


@pytest.mark.parametrize("content", NO_MANIFESTS.values(), ids=NO_MANIFESTS)
def test_what_is_not_a_manifest_is_an_error_that_names_the_file(version: Version, content: str) -> None:
    (Path(version.root) / "manifest.json").write_text(content)
    with pytest.raises(CorruptError, match=r"manifest\.json is not a manifest as it was written: .*; the version is damaged"):
        open_version(version.root)


@pytest.mark.parametrize(
    ("key", "value"),
    [("created", "x"), ("created", "2026-11-23T10:00:00"), ("raw_schema", "x"), ("raw_schema", schema_to_text(pa.schema([]))[:-8])],
)
def test_a_time_or_a_schema_that_is_none_is_an_error_before_it_is_needed(version: Version, key: str, value: str) -> None:
    edit_manifest(version, **{key: value})
    with pytest.raises(CorruptError, match=rf"manifest\.json is not a manifest: {key}.*; the version is damaged"):
        open_version(version.root)


def test_a_confirmation_without_a_time_is_passed_over(version: Version) -> None:
    (Path(version.root) / "confirmed-x").write_text("")
    assert open_version(str(Path(version.root).parent)).root == version.root


def test_an_altered_row_group_index_is_an_error(version: Version) -> None:
    path = row_groups_path(version.root, "a")
    table = pq.read_table(path)
    pq.write_table(table.set_column(table.column_names.index("rows"), "rows", pa.array([1] * len(table))), path)
    with pytest.raises(CorruptError, match=r"has sha256:.*; the manifest says sha256:.*; the version is damaged: remove its folder"):
        open_version(version.root)
    edit_manifest(version, row_groups_checksum=checksum(Path(path).read_bytes()))
    with pytest.raises(CorruptError, match=r"has digest .*; the manifest says .*; the version is damaged: remove its folder"):
        open_version(version.root)
    pq.write_table(table.set_column(table.column_names.index("rows"), "rows", pa.array(["1"] * len(table))), path)
    edit_manifest(version, row_groups_checksum=checksum(Path(path).read_bytes()))
    with pytest.raises(CorruptError, match=r"has other columns than split, part, index, file, rows"):
        open_version(version.root)
    Path(path).write_bytes(Path(path).read_bytes()[:100])
    with pytest.raises(CorruptError, match=r"the version is damaged"):
        open_version(version.root)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16"])
def test_tensor_columns_survive_arrow_also_in_slices(dtype: str, shape: tuple[int, ...]) -> None:
    column = TensorColumn(name="x", dtype=dtype, shape=shape)  # type: ignore[arg-type]
    values = np.arange(10 * int(np.prod(shape)), dtype=dtype).reshape(10, *shape)
    array = from_numpy(column, values)
    assert array.type == column.field.type
    assert np.array_equal(to_numpy(column, array.slice(3, 5)), values[3:8])


def test_a_schema_survives_as_text() -> None:
    schema = pa.schema({"age": pa.int32(), "price": pa.decimal128(10, 2), "tags": pa.list_(pa.string()), "at": pa.timestamp("us", "UTC")})
    assert schema_from_text(schema_to_text(schema)) == schema


def test_plain_parquet_is_a_version_without_etl(tmp_path: Path) -> None:
    for part in range(3):
        rows = pa.table({"x": np.arange(1_000, dtype=np.float32) + 1_000 * part, "y": np.arange(1_000)})
        pq.write_table(rows, tmp_path / f"{part}.parquet", row_group_size=300)
    plain = open_parquet(str(tmp_path), target="y")
    assert (plain.rows("train"), plain.manifest.target.name) == (3_000, "y")
    rows_seen = [x for batch in Loader(plain, "train", Order(global_batch=512, remainder="keep")) for x in batch["x"].tolist()]
    assert sorted(rows_seen) == list(range(3_000))


def test_plain_parquet_with_text_is_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"y": [1], "city": ["Oslo"]}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match=r"column city is string; plain Parquet is read with columns of numbers only"):
        open_parquet(str(tmp_path), target="y")

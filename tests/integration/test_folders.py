"""Folders of many files: the documents' example over real pictures, each file read once, by few tasks."""

import gzip
import re
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession
from raw import raw
from stores import new_store
from tables import raw_table, read_tables, source

from pipelines.config import Config, parse
from pipelines.data.sources import tables
from pipelines.data.sources.base import raw_tables
from pipelines.data.versions.versions import open_version
from pipelines.errors import SourceError
from pipelines.etl.identity import version_name
from pipelines.etl.run import run
from pipelines.spark.session import suit_columns

DOCUMENT = Path(__file__).parents[2] / "docs/how-to/images.md"
PICTURES = 300


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("tracking"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of MNIST's digits as PNG and JPEG files, `train/5/00001.png`, and files beside them that are no pictures."""
    folder = tmp_path_factory.mktemp("pictures with a blank, 100 %")
    images = np.frombuffer(gzip.decompress(raw("mnist", "train-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress(raw("mnist", "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    for number, (pixels, label) in enumerate(zip(images.reshape(-1, 28, 28)[:PICTURES], labels[:PICTURES], strict=True)):
        path = folder / ("test" if number % 5 == 0 else "train") / str(label) / f"{number:05}.{'png' if number % 2 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(pixels).save(path)
    (folder / "train/5/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    (folder / "train/notes.txt").write_text("whoever made them")
    return folder


def pictures(folder: Path, uri: str, **source: Any) -> Config:
    """The document's config over the folder, or over another source."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    values = yaml.safe_load(text)
    values["source"]["tables"]["files"]["path"] = str(folder)
    values["source"] |= source
    values["dataset"]["path"] = f"{uri.removeprefix('sqlite:///')}.{folder.name}"
    return parse(values | {"tracking": {"uri": uri}}, "images.md")


def picture_files(folder: Path) -> list[Path]:
    return sorted([*folder.rglob("*.png"), *folder.rglob("*.jpg")])


@pytest.mark.usefixtures("spark")
def test_class_and_split_come_from_the_path(folder: Path, uri: str) -> None:
    config = pictures(folder, uri)
    manifest = run(config)
    split_files = picture_files(folder)
    assert manifest.rows_parsed == len(split_files) == PICTURES + 1
    assert list(manifest.quarantined.values()) == [1]
    assert manifest.splits["test"].rows == len(picture_files(folder / "test"))
    assert manifest.splits["train"].rows + manifest.splits["validation"].rows == len(picture_files(folder / "train")) - 1
    assert manifest.encoders["class"].state["classes"] == [str(digit) for digit in range(10)]
    sources = open_version(config.dataset.path).sources()["files"]
    assert [file.path for file in sources] == list(map(str, split_files))
    assert manifest.sources["files"].files == len(split_files)
    assert run(config) == manifest, "it is up to date"


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_p6_equal_rows_make_one_digest_from_a_folder_an_archive_and_a_single_file(folder: Path, uri: str, tmp_path: Path) -> None:
    first = run(pictures(folder, uri))
    with tarfile.open(tmp_path / "pictures.tar", "w") as archive:
        for path in picture_files(folder):
            archive.add(path, path.relative_to(folder))
    rows = [(str(path.relative_to(folder)), path.read_bytes()) for path in picture_files(folder)][::-1]
    pq.write_table(pa.table(dict(zip(("path", "content"), zip(*rows, strict=True), strict=True))), tmp_path / "pictures.parquet")
    for table in ({"format": "tar", "path": str(tmp_path / "pictures.tar")}, {"format": "parquet", "path": f"{tmp_path}/pictures.parquet"}):
        manifest = run(pictures(folder, uri, tables={"files": table}))
        assert manifest.version != first.version and manifest.digest == first.digest


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_p6_a_file_that_moves_to_another_class_makes_another_version(folder: Path, uri: str, tmp_path: Path) -> None:
    config = pictures(shutil.copytree(folder, tmp_path / "pictures"), uri)
    first = run(config)
    moved = picture_files(tmp_path / "pictures/train/1")[0]
    moved.rename(tmp_path / "pictures/train/7" / moved.name)
    second = run(config)
    assert second.version != first.version and second.digest != first.digest
    assert second.splits["train"].rows + second.splits["validation"].rows == first.splits["train"].rows + first.splits["validation"].rows


def table_version_name(spark: SparkSession, table: dict[str, Any], query: str = "SELECT * FROM t") -> str:
    """The name of the version that a table makes."""
    columns = {"features": {"x": "identity"}, "target": {"y": "label"}}
    values = {"source": {"tables": {"t": table}, "query": query}, "dataset": {"path": "data", **columns}, "task": {"kind": "tabular"}}
    config = parse({"name": "named", **values}, "named.yaml")
    spark.catalog.clearCache()  # as a run does in the end: Spark takes a pack of the same paths for the same
    raw = raw_tables(config.source)
    return version_name(config, raw, {"t": raw["t"].identity(spark)}, spark)


ROWS = "SELECT * FROM t"
FILE = "SELECT *, _metadata.file_name FROM t"


@pytest.mark.parametrize(
    ("table", "query", "counts"),
    [
        ({"format": "binaryFile"}, ROWS, True),
        ({"format": "parquet"}, ROWS, True),
        ({"format": "parquet", "options": {"recursiveFileLookup": True}}, FILE, True),
        ({"format": "text"}, ROWS, True),
        ({"format": "csv", "schema": "a int"}, ROWS, True),
        ({"format": "json", "schema": "a int"}, ROWS, True),
    ],
)
def test_p6_paths_name_a_version_where_rows_hold_them(
    spark: SparkSession, tmp_path: Path, table: dict[str, Any], query: str, counts: bool
) -> None:
    """Never the place of the whole folder, nor, but of binaryFile, how its files are called in there. Folders that a glob matches, or that
    are paths themselves, make no columns, so that the rows are others."""
    original, copy = tmp_path / "here", tmp_path / "the re/below"
    for number, name in enumerate(("class=cat/1", "class=dog/2")):
        (original / name).parent.mkdir(parents=True)
        (original / name).write_bytes(bytes([number]))
    first = table_version_name(spark, table | {"path": str(original)}, query)
    shutil.copytree(original, copy)
    for path in (str(copy), copy.as_uri().replace("%20", " ")):
        assert table_version_name(spark, table | {"path": path}, query) == first
    without = {
        table_version_name(spark, table | {"path": path}, query)
        for path in (f"{copy}/*", f"{copy}/*/?", [f"{copy}/class=cat", f"{copy}/class=dog"])
    }
    assert len(without) == 1 and first not in without
    (copy / "class=dog/2").rename(copy / "class=cat/2")
    assert (table_version_name(spark, table | {"path": str(copy)}, query) != first) == counts


def test_p6_the_order_of_idx_files_names_a_version(spark: SparkSession, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        Path(path).write_text(path)
    table = {"format": "idx", "schema": "x binary, y binary"}
    assert table_version_name(spark, table | {"path": paths}) != table_version_name(spark, table | {"path": paths[::-1]})


@pytest.mark.parametrize(
    ("table", "column", "content"),
    [
        pytest.param(
            {"format": "binaryFile", "options": {"recursiveFileLookup": True}},
            "decode(content, 'utf-8')",
            "content {}",
            marks=pytest.mark.full,
        ),
        pytest.param({"format": "text", "options": {"wholetext": True}}, "value", "first line of {}\nand its last", marks=pytest.mark.full),
        pytest.param(
            {"format": "csv", "schema": "a int, b string", "options": {"header": True}}, "b", "a,b\n1,content {}", marks=pytest.mark.full
        ),
        ({"format": "json", "schema": "b string"}, "b", '{{"b": "content {}"}}'),
    ],
    ids=lambda value: value["format"] if isinstance(value, dict) else "",
)
def test_a_file_is_read_once_by_few_tasks(spark: SparkSession, tmp_path: Path, table: dict[str, Any], column: str, content: str) -> None:
    names = [f"{number % 40}/{number}.bin" for number in range(2_000)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content.format(name))
    expected = {(content.format(name) if table["format"] in ("binaryFile", "text") else f"content {name}") for name in names}
    raw = raw_tables(source(t={**table, "path": str(tmp_path)}))
    spark.sparkContext.setJobGroup(tmp_path.name, "many files")
    try:
        digests = {name: f"sha256:{sha256((tmp_path / name).read_bytes()).hexdigest()}" for name in names}
        listed = raw["t"].identity(spark)
        assert {file.path.removeprefix(f"{tmp_path}/"): file.checksum for file in listed} == digests
        for name in names:
            (tmp_path / name).unlink()
        assert tables.read_tables(spark, raw, suit_columns).parsed == {"t": len(names)}
        for _ in range(3):
            assert set(spark.sql(f"SELECT {column} AS found FROM t").toArrow()["found"].to_pylist()) == expected
        tracker = spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(tmp_path.name)]
        stages = {stage: tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds}
        tasks = sum(stage.numTasks for stage in stages.values() if stage)
        assert 0 < tasks < 100
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        spark.catalog.clearCache()


def test_bad_records_of_packed_files_have_their_place(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number:02}.csv.gz").write_bytes(gzip.compress(b"1\n2\n" if number != 70 else b"1\nx\n"))
    read = read_tables(spark, source(t={"format": "csv", "path": str(tmp_path), "schema": "a int"}))
    assert (read.parsed, read.handed_on) == ({"t": 200}, {"t": 199})
    assert read.malformed is not None
    assert read.malformed.collect() == [("t: a is not int", "x", f"{tmp_path}/70.csv.gz:2")]


def test_folders_named_as_hive_names_them_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate(["class=cat/fold=1/a.jpg", "class=a%20dog/fold=2/b.jpg"]):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(bytes([number]))
    assert read_tables(spark, source(t={"format": "binaryFile", "path": str(tmp_path)})).parsed == {"t": 2}
    assert spark.sql("SELECT class, fold, content FROM t ORDER BY fold").collect() == [("cat", "1", b"\0"), ("a dog", "2", b"\1")]


def test_an_empty_file_among_others_is_a_row_without_content(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("kind=cat/a.jpg", "kind=cat/nothing at 5%.jpg", "kind=a%20dog/nothing.jpg", "kind=cat/left out.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"a" if name.endswith("a.jpg") else b"")
    table = raw_table({"format": "binaryFile", "path": str(tmp_path), "options": {"pathGlobFilter": "*.jpg"}})
    assert sorted(file.bytes for file in table.identity(spark)) == [0, 0, 1]
    rows = sorted((row.path, row.length, row.content, row.kind) for row in table.rows(spark).rows.collect())
    assert rows == sorted(
        [
            (f"file:{tmp_path}/kind=cat/a.jpg", 1, b"a", "cat"),
            (f"file:{tmp_path}/kind=cat/nothing at 5%.jpg", 0, b"", "cat"),
            (f"file:{tmp_path}/kind=a%20dog/nothing.jpg", 0, b"", "a dog"),
        ]
    )
    spark.catalog.clearCache()
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text("a\nb\n" * number)
    texts = source(t={"format": "text", "path": f"{tmp_path}/*.txt", "options": {"wholetext": True}})
    assert read_tables(spark, texts).parsed == {"t": 2}
    assert spark.sql("SELECT value FROM t ORDER BY value").collect() == [("",), ("a\nb\n",)]


def test_files_that_spark_would_pass_over_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/a.jpg").write_bytes(b"a")
    with pytest.raises(SourceError, match=r"source.tables.t: .* holds 1 file, of which Spark reads 0; set options: \{recursiveFileLookup"):
        read_tables(spark, source(t={"format": "binaryFile", "path": str(tmp_path)}))
    (tmp_path / "b.jpg").write_bytes(b"b")
    settings = {"format": "binaryFile", "path": str(tmp_path), "options": {"recursiveFileLookup": True}}
    assert read_tables(spark, source(t=settings)).parsed == {"t": 2}
    spark.catalog.clearCache()  # as a run does: Spark takes a table for cached by its path
    (tmp_path / "12:30.jpg").write_bytes(b"c")
    with pytest.raises(SourceError, match=r"Hadoop reads no file with a colon in its name; rename it, or put the files into a tar archive"):
        read_tables(spark, source(t=settings))
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(tmp_path / "12:30.jpg", "12:30.jpg")
    assert read_tables(spark, source(t={"format": "tar", "path": f"{tmp_path}/all.tar"})).parsed == {"t": 1}
    (tmp_path / "all.tar").unlink()
    (tmp_path / "12:30.jpg").rename(tmp_path / "12-30.jpg")
    spark.catalog.clearCache()
    assert read_tables(spark, source(t=settings)).parsed == {"t": 3}

"""Parquet, IDX, files inside packages: read as they are, or refused by name; and checksums of all."""

import gzip
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tables import idx, raw_table, read_tables, source, view_rows, write

from pipelines.config import Config, parse
from pipelines.data.sources.base import distribute, raw_tables
from pipelines.data.sources.files import file_table
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.identity import check_unchanged
from pipelines.etl.query import analyse
from pipelines.runtime.compat.spark import rows_read


def test_parquet_files_must_agree_on_columns(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).selectExpr("id", "id AS a").coalesce(1).write.parquet(f"{tmp_path}/p/x=1")
    spark.range(3).selectExpr("id").coalesce(1).write.parquet(f"{tmp_path}/p/x=2")
    table = {"format": "parquet", "path": f"{tmp_path}/p"}
    with pytest.raises(SourceError, match=r"^source.tables.t: .* differ in their columns: a INT64"):
        read_tables(spark, source(t=table))
    assert read_tables(spark, source(t=table | {"options": {"mergeSchema": True}})).parsed == {"t": 6}
    table["path"] += "/x=1"
    with pytest.raises(SourceError, match=r"has no column nope; it has id, a"):
        read_tables(spark, source(t=table | {"schema": "id long, nope int"}))
    read_tables(spark, source(t=table | {"schema": "id long"}))
    assert view_rows(spark) == [(0,), (1,), (2,)]


def test_idx_files_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    images = write(tmp_path, "images", idx(0x08, (3, 2, 2), bytes(range(12))))
    labels = write(tmp_path, "labels.gz", gzip.compress(idx(0x0B, (3,), struct.pack(">3h", 7, -8, 9))))
    tables = read_tables(spark, source(t={"format": "idx", "path": [images, labels], "schema": "row long, image binary, label int"}))
    assert tables.parsed == {"t": 3}
    with pytest.raises(SourceError, match=r"^source.tables.t: idx files of one table must have as many rows"):
        longer = write(tmp_path, "longer", idx(0x08, (4,), b"1234"))
        read_tables(spark, source(t={"format": "idx", "path": [images, longer]}))
    read_tables(spark, source(t={"format": "idx", "path": [images, labels], "schema": "row long, image binary, label int"}))
    assert [(row, bytes(image), label) for row, image, label in view_rows(spark)] == [
        (0, b"\0\1\2\3", 7),
        (1, b"\4\5\6\7", -8),
        (2, b"\x08\x09\x0a\x0b", 9),
    ]


@pytest.mark.full
def test_a_file_inside_a_package(spark: SparkSession) -> None:
    digits = {"format": "package", "path": "package://sklearn/datasets/data/digits.csv.gz"}
    pixels = ", ".join(f"p{number} int" for number in range(64))
    tables = read_tables(spark, source(t={**digits, "schema": f"{pixels}, label int"}))
    assert tables.parsed == {"t": 1797}
    assert spark.sql("SELECT sum(p10), sum(label) FROM t").first() == (18657, 8070)
    iris = {"format": "package", "path": "package://sklearn/datasets/data/iris.csv", "options": {"skipRows": 1}}
    assert read_tables(spark, source(t={**iris, "schema": "a double, b double, c double, d double, kind int"})).parsed == {"t": 150}
    with pytest.raises(SourceError, match=r"source.tables.t: package://sklearn/datasets/none.csv: no such file in .*sklearn; give"):
        read_tables(spark, source(t={"format": "package", "path": "package://sklearn/datasets/none.csv", "schema": "a int"}))
    table = raw_table({**digits, "schema": "a int"})
    assert [file.bytes for file in table.identity(spark)] == [57523]


def test_files_inside_archives(spark: SparkSession, tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        paths.append(str(tmp_path / f"{number}.tar.gz"))
        with tarfile.open(paths[-1], "w:gz") as archive:
            archive.add(write(tmp_path, f"{number}.txt", f"content {number}"), f"folder/{number}.txt")
    assert read_tables(spark, source(t={"format": "tar", "path": paths})).parsed == {"t": 2}
    assert [(path, bytes(content)) for path, content in view_rows(spark)] == [
        ("folder/0.txt", b"content 0"),
        ("folder/1.txt", b"content 1"),
    ]
    write(tmp_path, "none.tar", "no archive" * 100)
    with pytest.raises(SourceError, match=r"^source.tables.t: .*none.tar is not a whole tar archive"):
        read_tables(spark, source(t={"format": "tar", "path": str(tmp_path / "none.tar")}))
    with pytest.raises(ConfigError, match=r"source.tables.t.schema: tar has the columns path and content"):
        read_tables(spark, source(t={"format": "tar", "path": paths, "schema": "a int"}))


def test_checksums_are_of_the_bytes(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "b.txt", "x")
    write(tmp_path, "a.txt", "hello")
    table = {"format": "text", "path": str(tmp_path)}
    first, second = raw_table(table).identity(spark)
    assert (first.path, first.bytes) == (f"{tmp_path}/a.txt", 5)
    assert first.checksum == "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert second.path == f"{tmp_path}/b.txt"
    with monkeypatch.context() as patch:
        patch.setattr(file_table, "DRIVER_BYTES", 0)
        assert raw_table(table).identity(spark) == (first, second)
    by_stat = raw_table(table | {"checksum": "stat"})
    before = by_stat.state()
    assert before == by_stat.identity(spark) == raw_table(table).state()
    write(tmp_path, "b.txt", "changed")
    with pytest.raises(SourceError, match=f"^source.tables.t: {tmp_path}/b.txt changed while being read"):
        check_unchanged({"t": by_stat}, {"t": before})
    check_unchanged({"t": by_stat}, {"t": raw_table(table).state()})
    with pytest.raises(SourceError, match="nowhere: no such file"):
        raw_table(table | {"path": f"{tmp_path}/nowhere"}).identity(spark)


@pytest.mark.full
def test_the_name_of_its_file_is_a_column_of_every_format_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Relative to the folder, so that a copy of it gives the same rows; `analyse` refuses what Spark would give instead, and says so."""
    names = ["a b/1.x", "c%20/ü.x"]
    for folder, text in {"csv": "1\n2\n", "json": '{"a": 1}\n{"a": 2}\n', "text": "1\n2\n"}.items():
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (tmp_path / "parquet").mkdir()
    for name, kind in zip(names, (pa.int32(), pa.int64()), strict=True):
        pq.write_table(pa.table({"a": pa.array([1, 2], kind)}), tmp_path / "parquet" / name.replace("/", "-"))
    for format_name in ("csv", "json", "text", "parquet"):
        if format_name == "parquet":  # Spark descends into no folders but those of partitions
            names = [name.replace("/", "-") for name in names]
        schema = {"schema": "value string" if format_name == "text" else "a long"}
        table = {"format": format_name, "path": f"{tmp_path}/{format_name}", "file_column": "file", **schema}
        read_tables(spark, source(t=table))
        values = ("1", "2") if format_name == "text" else (1, 2)
        assert view_rows(spark) == sorted([(value, name) for name in names for value in values], key=repr)
        named = [
            list(raw_table(form).identity_lines(raw_table(form).identity(spark), ())) for form in (table, {**table, "file_column": ""})
        ]
        assert [all("1.x" in line or "ü.x" in line for line in lines) for lines in named] == [True, False]
        read_tables(spark, source(t={**table, "path": f"{tmp_path}/{format_name}/{names[0]}"}))
        assert {row[-1] for row in view_rows(spark)} == {names[0].rpartition("/")[2]}
    with pytest.raises(ValueError, match=r"which format tar does not add; select its column path"):
        source(t={"format": "tar", "path": "a.tar", "file_column": "file"})


def test_what_spark_says_of_files_is_refused_with_the_setting_that_gives_it(spark: SparkSession, tmp_path: Path) -> None:
    csv = {"format": "csv", "path": write(tmp_path, "a.csv", "1\n"), "schema": "a long"}

    def config(query: str, **added: str) -> Config:
        values = {
            "name": "x",
            "source": {"tables": {"t": {**csv, **added}}, "query": query},
            "dataset": {"path": str(tmp_path / "out"), "features": {"f": "vocabulary"}, "target": {"a": "label"}},
            "task": {"kind": "tabular"},
        }
        return parse(values, "x.yaml")

    for expression in ("input_file_name()", "_metadata.file_name"):
        settings = config(f"SELECT a, {expression} AS f FROM t")
        with pytest.raises((ConfigError, SourceError), match=r"set file_column of the table to a name, and select that column"):
            analyse(spark, settings, raw_tables(settings.source))
    mended = config("SELECT a, file AS f FROM t", file_column="file")
    assert analyse(spark, mended, raw_tables(mended.source)) == ()


def test_progress_counts_rows_and_neither_files_nor_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own records are also the pieces of work of a Python task, and the batches of a cache."""

    def once(number: int) -> Iterator[pa.RecordBatch]:  # here, since it is pickled by value
        yield pa.RecordBatch.from_pydict({"a": pa.array([number], pa.int32())})

    context = spark.sparkContext
    pq.write_table(pa.table({"a": range(1_000)}), tmp_path / "a.parquet")
    cached = spark.createDataFrame([(number,) for number in range(100)], "a int").persist()
    cached.count()
    work = {
        "work of Python": lambda: distribute(spark, [1, 2, 3], once, "a int").collect(),
        "a cache": lambda: cached.where("a > 3").collect(),
        "a file": lambda: spark.read.parquet(f"{tmp_path}/a.parquet").where("a > 3").collect(),
    }
    counts = {}
    for name, run in work.items():
        context.setJobGroup(name, name)
        run()
        context._jsc.sc().listenerBus().waitUntilEmpty()  # what the status says comes by events
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(name)]
        counts[name] = rows_read(spark, [stage for job in jobs if job for stage in job.stageIds])
    context.setJobGroup("tests", "tests")
    cached.unpersist()
    assert counts == {"work of Python": 0, "a cache": 0, "a file": 1_000}

"""DuckDB, Avro, ORC, NumPy, HDF5 and datasets of Hugging Face with Spark: rows, folders, files that differ, and the drafts of `init`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession
from tables import raw_table, read_tables, source, view_rows

from pipelines import api
from pipelines.config import parse
from pipelines.errors import SourceError
from pipelines.etl.run import run

ROWS = 600


def columns(start: int, rows: int) -> dict[str, np.ndarray]:
    ids = np.arange(start, start + rows)
    return {"id": ids, "x": np.sin(ids), "left": np.sin(ids) > 0}


def write_duckdb(path: Path, start: int, rows: int) -> dict[str, str]:
    table = pa.table(columns(start, rows))
    with duckdb.connect(str(path.with_suffix(".duckdb"))) as connection:
        connection.register("rows", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM rows")
    return {"format": "duckdb", "table": "people"}


def write_avro(path: Path, start: int, rows: int) -> dict[str, str]:
    fastavro = pytest.importorskip("fastavro")
    kinds = [("id", "long"), ("x", "double"), ("left", "boolean")]
    schema = {"type": "record", "name": "Row", "fields": [{"name": name, "type": kind} for name, kind in kinds]}
    with path.with_suffix(".avro").open("wb") as stream:
        fastavro.writer(stream, schema, pa.table(columns(start, rows)).to_pylist())
    return {"format": "avro"}


def write_orc(path: Path, start: int, rows: int) -> dict[str, str]:
    orc.write_table(pa.table(columns(start, rows)), path.with_suffix(".orc"))
    return {"format": "orc"}


def write_numpy(path: Path, start: int, rows: int) -> dict[str, str]:
    np.savez(path.with_suffix(".npz"), **columns(start, rows))
    return {"format": "numpy"}


def write_hdf5(path: Path, start: int, rows: int) -> dict[str, str]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        for name, array in columns(start, rows).items():
            file[f"people/{name}"] = array
    return {"format": "hdf5", "group": "people"}


WRITERS = [write_duckdb, write_avro, write_orc, write_numpy, write_hdf5]
Writer = Callable[[Path, int, int], dict[str, str]]


@pytest.mark.parametrize("write", [WRITERS[0], *(pytest.param(write, marks=pytest.mark.full) for write in WRITERS[1:])])
def test_files_in_folders_are_one_table(spark: SparkSession, tmp_path: Path, write: Writer) -> None:
    for place, (folder, rows) in enumerate({"year=2025": 3, "year=2026": 2}.items()):
        (tmp_path / folder).mkdir()
        settings = write(tmp_path / folder / "part", 10 * place, rows)
    table = {**settings, "path": str(tmp_path)}
    tables = read_tables(spark, source(t=table))
    assert tables.parsed == {"t": 5} and tables.malformed is None
    rows = {row["id"]: row.asDict() for row in spark.table("t").collect()}
    assert sorted(rows) == [0, 1, 2, 10, 11] and rows[11] == {"id": 11, "x": np.sin(11), "left": False, "year": "2026"}
    assert raw_table(table).empty(spark).schema == spark.table("t").schema
    earlier = raw_table(table).identity(spark)
    assert len(earlier) == 2 and raw_table(table).since(spark, earlier) is None
    write(tmp_path / "year=2026/later", 30, 2)
    increment = raw_table(table).since(spark, earlier)
    assert increment is not None and sorted(row["id"] for row in increment.rows(spark).rows.collect()) == [30, 31]


@pytest.mark.full
@pytest.mark.parametrize("write", WRITERS)
def test_a_version_of_each_is_the_same_again(spark: SparkSession, tmp_path: Path, write: Writer) -> None:
    settings = {**write(tmp_path / "people", 0, ROWS), "path": str(tmp_path / "people.*")}
    dataset = {"features": {"x": "standardize"}, "target": {"left": "binary"}, "key": ["id"], "path": str(tmp_path / "data")}
    values = {
        "name": "people", "source": {"tables": {"people": settings}}, "dataset": dataset, "task": {"kind": "tabular"},
        "tracking": {"uri": f"sqlite:///{tmp_path}/mlflow.db"},
    }  # fmt: skip
    manifest = run(parse(values, "people.yaml"))
    assert sum(split.rows for split in manifest.splits.values()) == ROWS and run(parse(values, "people.yaml")).created == manifest.created


@pytest.mark.full
@pytest.mark.parametrize("write", WRITERS)
def test_init_drafts_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Writer) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_HOME", raising=False)
    settings = write(Path("people"), 0, ROWS)
    (path,) = tmp_path.iterdir()
    draft = api.init(path.name, target="left", output="drafted.yaml", rehearse=False)
    assert draft.sections["source"]["tables"] == {"drafted": {**settings, "path": path.name}}
    assert "x" in draft.sections["dataset"]["features"]


@pytest.mark.full
def test_files_that_differ_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(2), y=np.zeros(2, np.int64))
    np.savez(tmp_path / "b.npz", x=np.ones(2))
    table = {"format": "numpy", "path": str(tmp_path)}
    with pytest.raises(SourceError, match=r"source.tables.t: .*b.npz has the columns x, and the first file x, y; give the table a schema"):
        read_tables(spark, source(t=table))
    read_tables(spark, source(t={**table, "schema": "X double"}))
    assert view_rows(spark) == [(0.0,), (0.0,), (1.0,), (1.0,)]
    np.savez(tmp_path / "b.npz", x=np.ones(2), y=np.full(2, 0.5))
    with pytest.raises(SourceError, match=r"b.npz: column y is double, and not int64, as the schema or the first file has it"):
        read_tables(spark, source(t=table))
    with pytest.raises(SourceError, match=r"a.npz has no column z; it has x, y"):
        raw_table({**table, "schema": "z int"}).empty(spark)


@pytest.mark.full
def test_orc_files_that_differ_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Of which Spark would make NULL."""
    orc.write_table(pa.table({"a": [1], "b": [2.0]}), tmp_path / "1.orc")
    orc.write_table(pa.table({"a": [1], "c": [2.0]}), tmp_path / "2.orc")
    table = {"format": "orc", "path": str(tmp_path)}
    with pytest.raises(SourceError, match=r"2.orc and .*1.orc have not the same columns: b double, c double"):
        read_tables(spark, source(t=table))
    read_tables(spark, source(t={**table, "schema": "a bigint"}))
    assert view_rows(spark) == [(1,), (1,)]
    (tmp_path / "2.orc").write_bytes((tmp_path / "1.orc").read_bytes()[:100])
    with pytest.raises(SourceError, match=r"source.tables.t: .*2.orc cannot be read"):
        read_tables(spark, source(t=table))


@pytest.mark.full
def test_the_splits_of_a_dataset_are_a_column(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    parts = {"train": columns(0, ROWS), "test": columns(ROWS, 100)}
    datasets.DatasetDict({name: datasets.Dataset.from_dict(part) for name, part in parts.items()}).save_to_disk(tmp_path / "people")
    table: dict[str, Any] = {"format": "huggingface_dataset", "path": str(tmp_path / "people"), "split_column": "part"}
    read_tables(spark, source(t=table))
    assert spark.table("t").groupBy("part").count().orderBy("part").collect() == [("test", 100), ("train", ROWS)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCKSTEP_HOME", raising=False)
    draft = api.init("people", target="left", output="drafted.yaml", rehearse=False)
    assert draft.sections["source"]["tables"] == {
        name: {"format": "huggingface_dataset", "path": f"people/{name}"} for name in ("train", "test")
    }
    assert draft.sections["dataset"]["split"] == {"by": "split", "validation": 0.1}


def test_a_moment_outside_of_the_years_is_malformed(spark: SparkSession, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS id, DATE 'infinity' AS day UNION ALL SELECT 2, DATE '2026-01-31'")
    tables = read_tables(spark, source(t={"format": "duckdb", "path": str(tmp_path / "a.duckdb"), "table": "t", "file_column": "file"}))
    assert [(row["id"], str(row["day"]), row["file"]) for row in spark.table("t").collect()] == [(2, "2026-01-31", "a.duckdb")]
    assert tables.malformed is not None
    (row,) = tables.malformed.collect()
    assert row["reason"] == "t: day is infinite, or outside of the years 1 to 9999" and "id=1" in row["record"]

"""Delta tables in Spark: every version has the rows and values that delta-rs itself scans, and what was added since another version."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_logs import add_file, commit, deletion_vector, field, rows_of_many_types, table_actions
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tables import raw_table

from pipelines.config import parse
from pipelines.data.sources.base import RawTable
from pipelines.etl.run import run

IDS = pa.table({"id": pa.array(range(10), pa.int64())})


def delta(path: str | Path, **settings: Any) -> RawTable[Any]:
    return raw_table({"format": "delta", "path": str(path), **settings})


def test_values_pass_through_spark_as_delta_rs_scans_them(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "a b#é")
    rows = rows_of_many_types()
    write_deltalake(path, rows, partition_by=["city", "day"])
    DeltaTable(path).delete("id < 2")
    write_deltalake(path, rows.slice(0, 2).append_column("new", pa.array(["x", None])), mode="append", schema_mode="merge")
    expected = sorted(pa.table(DeltaTable(path).scan()).to_pylist(), key=repr)
    assert rows_in_spark(spark, delta(path)) == expected and len(expected) == 12


def rows_in_spark(spark: SparkSession, table: RawTable[Any]) -> list[dict[str, Any]]:
    rows = table.rows(spark)
    values = rows.rows.toArrow().to_pylist()
    assert rows.count in (len(values), None)
    assert table.empty(spark).schema == rows.rows.schema
    return sorted(values, key=repr)


def test_the_latest_version_is_that_of_the_start(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    write_deltalake(path, IDS)
    table = delta(path)
    (identity,) = table.identity(spark)
    assert identity.checksum.startswith(f"delta:{DeltaTable(path).metadata().id}@0:")
    DeltaTable(path).delete("id < 5")
    write_deltalake(path, IDS, mode="append")
    DeltaTable(path).optimize.compact()
    assert rows_in_spark(spark, table) == IDS.to_pylist()
    assert table.identity(spark) == (identity,)
    assert "@3:" in delta(path).identity(spark)[0].checksum
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(Exception, match=r"is gone, which version 0 of .* consists of, as after a VACUUM; name a later version"):
        rows_in_spark(spark, delta(path, version=0))


def test_large_files_are_read_in_parts(spark: SparkSession, tmp_path: Path) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    rows = pa.table({"id": np.arange(400_000), "noise": np.random.default_rng(0).random(400_000)})
    added = add_file(tmp_path, "a.parquet", rows, deletionVector=deletion_vector([0, 9_999, 10_000, 60_000]))
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=10_000)
    commit(tmp_path, 0, [*table_actions(field("id", "long"), field("noise", "double"), features=["deletionVectors"]), added])
    read = delta(tmp_path).rows(spark).rows
    assert read.rdd.getNumPartitions() > 1
    ids = set(read.select("id").toArrow()["id"].to_pylist())
    assert ids == set(range(400_000)) - {0, 9_999, 10_000, 60_000}


def test_a_table_in_a_store_is_read(spark: SparkSession, store_options: str, tmp_path: Path) -> None:
    from pyarrow.fs import FileSystem

    path = commit(tmp_path, 0, [*table_actions(field("id", "long")), add_file(tmp_path, "a b%/c.parquet", IDS)])
    filesystem, bucket = FileSystem.from_uri(f"s3://bucket/?{store_options}")
    filesystem.create_dir(bucket)
    for file in ("a b%/c.parquet", "_delta_log/00000000000000000000.json"):
        with filesystem.open_output_stream(f"bucket/deep/table/{file}") as stream:
            stream.write(Path(path, file).read_bytes())
    for scheme in ("s3", "s3a"):
        assert rows_in_spark(spark, delta(f"{scheme}://bucket/deep/table?{store_options}")) == IDS.to_pylist()


def test_etl_reads_the_version_and_no_row_of_one_that_it_knows(spark: SparkSession, tmp_path: Path) -> None:
    path, rows = tmp_path / "table", pa.table({"id": list(range(200)), "x": [0.5 * number for number in range(200)], "y": [0, 1] * 100})
    write_deltalake(str(path), rows)
    DeltaTable(str(path)).delete("id < 20")
    write_deltalake(str(path), rows.slice(0, 5), mode="append")
    table = {"format": "delta", "path": str(path)}
    values: dict[str, Any] = {
        "name": "delta",
        "source": {"tables": {"numbers": table}},
        "dataset": {"path": str(tmp_path / "dataset"), "key": ["id"], "features": {"x": "standardize"}, "target": {"y": "binary"}},
        "task": {"kind": "tabular"},
        "tracking": {"uri": f"sqlite:///{tmp_path}/mlflow.db"},
    }
    manifest = run(parse(values, "delta.yaml"))
    assert sum(split.rows for split in manifest.splits.values()) == 185
    path = path.rename(tmp_path / "moved")
    for file in path.glob("*.parquet"):
        file.unlink()
    values["source"]["tables"]["numbers"] = {**table, "path": str(path)}
    assert run(parse(values, "delta.yaml")).created == manifest.created

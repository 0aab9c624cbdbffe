"""Delta tables in Spark: every version has the rows and values that delta-rs itself scans, and what was added since another version."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_logs import add_file, commit, deletion_vector, field, remove_file, struct_type, table_actions
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from tables import raw_table

from pipelines.config import parse
from pipelines.data.sources.base import NoIncrementError, RawTable
from pipelines.etl.run import run

IDS = pa.table({"id": pa.array(range(10), pa.int64())})


def delta(path: str | Path, **settings: Any) -> RawTable[Any]:
    return raw_table({"format": "delta", "path": str(path), **settings})


def rows_in_spark(spark: SparkSession, table: RawTable[Any]) -> list[dict[str, Any]]:
    rows = table.rows(spark)
    values = rows.rows.toArrow().to_pylist()
    assert rows.count in (len(values), None)
    assert table.empty(spark).schema == rows.rows.schema
    return sorted(values, key=repr)


def oracle(path: str | Path, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(pa.table(DeltaTable(str(path), version=version).scan()).to_pylist(), key=repr)


def check_all_versions(spark: SparkSession, path: str | Path) -> None:
    for version in range(DeltaTable(str(path)).version() + 1):
        assert rows_in_spark(spark, delta(path, version=version)) == oracle(path, version), version


def test_every_version_of_a_table_that_is_written_to_has_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "a b#é")
    times = pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999), None, datetime(2024, 3, 31, 1, 30)] * 4, pa.timestamp("us"))
    rows = pa.table(
        {
            "id": pa.array(range(12), pa.int64()),
            "small": pa.array([1, None, -128] * 4, pa.int8()),
            "ratio": pa.array([0.1, None, float("inf")] * 4, pa.float32()),
            "price": pa.array([Decimal("-1.50"), None, Decimal("99999999.99")] * 4, pa.decimal128(10, 2)),
            "at": times.cast(pa.timestamp("us", tz="UTC")),
            "local": times,
            "day": pa.array([date(1969, 12, 31), None, date(2024, 2, 29)] * 4),
            "raw": pa.array([b"\x00\xff", None, b""] * 4),
            "flag": pa.array([True, None, False] * 4),
            "tags": pa.array([["a", None], None, []] * 4, pa.list_(pa.string())),
            "inner": pa.array([{"x": 1, "y": [1.5]}, None, {"x": None, "y": None}] * 4),
            "map": pa.array([[("k", 1)], None, [("a", None), ("b", 2)]] * 4, pa.map_(pa.string(), pa.int32())),
            "city": pa.array(["São Paulo/é=%", None, "a b"] * 4),
        }
    )
    write_deltalake(path, rows, partition_by=["city", "day"])
    table = DeltaTable(path)
    table.delete("id < 2")
    table.update(updates={"flag": "true"}, predicate="id = 5")
    evolved = rows.slice(0, 2).append_column("new", pa.array(["x", None]))
    write_deltalake(path, evolved, mode="append", schema_mode="merge")
    source = pa.table({"id": pa.array([5, 100], pa.int64()), "small": pa.array([7, 8], pa.int8())})
    merger = DeltaTable(path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update({"small": "s.small"}).when_not_matched_insert({"id": "s.id", "small": "s.small"}).execute()
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    write_deltalake(path, rows.slice(0, 3), mode="overwrite", schema_mode="overwrite", partition_by=["city", "day"])
    check_all_versions(spark, path)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.binary(), pa.int16(), pa.float64(), pa.bool_()])
def test_values_of_partitions_have_their_column_s_type(kind: pa.DataType, spark: SparkSession, tmp_path: Path) -> None:
    moments = [datetime(1969, 12, 31, 23, 59, 59, 999999), None, datetime(2024, 3, 31, 1, 30)]
    values = {"timestamp": moments, "binary": [b"a\x01/", None, b"%"], "int16": [-1, None, 2], "double": [0.1, None, -1e30]}
    keys = pa.array(values.get(str(kind).partition("[")[0], [True, None, False]), kind)
    write_deltalake(str(tmp_path), pa.table({"id": [1, 2, 3], "key": keys}), partition_by=["key"])
    assert rows_in_spark(spark, delta(tmp_path)) == oracle(tmp_path)


def test_rows_of_deletion_vectors_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    name = "p=a%20b+c=é/part 1.parquet"
    schema = table_actions(field("id", "long"), field("p", "string"), features=["deletionVectors"], partitions=["p"])
    whole = add_file(tmp_path, name, IDS, partitionValues={"p": "a b+c=é"})
    commit(tmp_path, 0, [*schema, whole, add_file(tmp_path, "b.parquet", IDS, partitionValues={"p": None})])
    masked = {"add": {**whole["add"], "deletionVector": deletion_vector([0, 3, 9])}}
    commit(tmp_path, 1, [remove_file(whole["add"]["path"]), masked], "DELETE")
    assert len(oracle(tmp_path, 1)) == 17
    check_all_versions(spark, tmp_path)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_found_by_physical_names_or_numbers(mode: str, spark: SparkSession, tmp_path: Path) -> None:
    """Nested ones too. Delta-rs, which knows no numbers, reads NULLs where only these are right."""

    def inner(number: int) -> dict[str, Any]:
        return struct_type(field("x", "integer", number, f"c{number}"), field("y", "long", number + 1, f"c{number + 1}"))

    def stored(number: int) -> pa.DataType:
        fields = [
            numbered("z", pa.int64(), 99),
            numbered(f"c{number + 1}", pa.int64(), number + 1),
            numbered(f"c{number}", pa.int32(), number),
        ]
        return pa.struct(fields)

    def numbered(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name if mode == "name" else f"{name}_by_number", kind, metadata={"PARQUET:field_id": str(number)})

    def value(kind: pa.DataType, number: int) -> dict[str, Any]:
        return {kind.field(0).name: -1, kind.field(1).name: number * 10, kind.field(2).name: number}

    fields = [
        field("Id", "long", 1, "c1"),
        field("s", inner(20), 2, "c2"),
        field("l", {"type": "array", "elementType": inner(30), "containsNull": True}, 3, "c3"),
        field("m", {"type": "map", "keyType": "string", "valueType": inner(40), "valueContainsNull": True}, 4, "c4"),
        field("absent", inner(50), 5, "c5"),
        field("p q", "date", 6, "c6"),
    ]
    kinds = [pa.list_(stored(30)), pa.int64(), stored(20), pa.map_(pa.string(), stored(40))]
    schema = pa.schema([numbered(f"c{number}", kind, number) for number, kind in zip((3, 1, 2, 4), kinds, strict=True)])
    columns = [
        [[value(kinds[0].value_type, 1), None, value(kinds[0].value_type, 2)][:number] if number != 1 else None for number in range(6)],
        list(range(6)),
        [None if number == 2 else value(kinds[2], number) for number in range(6)],
        [None if number == 3 else [("k", value(kinds[3].item_type, number)), ("l", None)] for number in range(6)],
    ]
    rows = pa.table([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], schema=schema)
    mapping = {"features": ["columnMapping", "deletionVectors"], "delta_columnMapping_mode": mode, "delta_columnMapping_maxColumnId": "99"}
    added = add_file(tmp_path, "xy/a.parquet", rows, partitionValues={"c6": "2020-02-29"}, deletionVector=deletion_vector([0, 4]))
    commit(tmp_path, 0, [*table_actions(*fields, partitions=["p q"], **mapping), added])
    expected = [
        {
            "Id": number,
            "s": None if number == 2 else {"x": number, "y": number * 10},
            "l": None if number == 1 else [{"x": 1, "y": 10}, None, {"x": 2, "y": 20}][:number],
            "m": None if number == 3 else [("k", {"x": number, "y": number * 10}), ("l", None)],
            "absent": None,
            "p q": date(2020, 2, 29),
        }
        for number in (1, 2, 3, 5)
    ]
    assert rows_in_spark(spark, delta(tmp_path)) == sorted(expected, key=repr)


def test_files_of_a_shallow_clone_lie_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    place = f"{tmp_path}/else where/%41é.parquet"
    address = "file://" + place.replace("%", "%25").replace(" ", "%20").replace("é", "%C3%A9")
    path = commit(tmp_path / "clone", 0, [*table_actions(field("id", "long")), add_file(tmp_path, place, IDS, path=address)])
    assert rows_in_spark(spark, delta(path)) == IDS.to_pylist()


def test_the_latest_version_is_that_of_the_start(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    write_deltalake(path, IDS)
    table = delta(path)
    (identity,) = table.identity(spark)
    assert identity.checksum == f"delta:{DeltaTable(path).metadata().id}@0"
    DeltaTable(path).delete("id < 5")
    write_deltalake(path, IDS, mode="append")
    DeltaTable(path).optimize.compact()
    assert rows_in_spark(spark, table) == IDS.to_pylist()
    assert table.identity(spark) == (identity,)
    assert delta(path).identity(spark)[0].checksum.endswith("@3")
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
    values["source"]["tables"]["numbers"] = {**table, "version": 1}
    earlier = run(parse(values, "delta.yaml"))
    assert sum(split.rows for split in earlier.splits.values()) == 180
    path = path.rename(tmp_path / "moved")
    for file in path.glob("*.parquet"):
        file.unlink()
    values["source"]["tables"]["numbers"] = {**table, "path": str(path)}
    assert run(parse(values, "delta.yaml")).created == manifest.created


def added_rows(spark: SparkSession, path: str, earlier: int, later: int | None = None) -> list[dict[str, Any]] | None:
    table = delta(path, **({} if later is None else {"version": later})).since(spark, delta(path, version=earlier).identity(spark))
    return None if table is None else rows_in_spark(spark, table)


def test_what_was_appended_is_read_although_it_was_compacted(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    for start in range(0, 40, 10):
        write_deltalake(path, pa.table({"id": list(range(start, start + 10))}), mode="append")
    DeltaTable(path).optimize.compact()
    write_deltalake(path, pa.table({"id": [40]}), mode="append")
    assert DeltaTable(path).version() == 5
    assert added_rows(spark, path, 5) is None
    assert added_rows(spark, path, 3, later=4) is None
    assert added_rows(spark, path, 4) == [{"id": 40}]
    assert added_rows(spark, path, 1) == [{"id": number} for number in range(20, 41)]
    assert added_rows(spark, path, 0, later=2) == [{"id": number} for number in range(10, 30)]
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert added_rows(spark, path, 4) == [{"id": 40}]
    with pytest.raises(NoIncrementError, match=r"which commit 2 added, was compacted since, and is gone, as after a VACUUM"):
        added_rows(spark, path, 1)


def test_the_reason_for_no_increment_names_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path)
    write_deltalake(path, IDS)
    DeltaTable(path).delete("id = 1")
    DeltaTable(path).update(updates={"id": "77"}, predicate="id = 2")
    merger = DeltaTable(path).merge(IDS, "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update({"id": "s.id"}).execute()
    write_deltalake(path, IDS, mode="overwrite")
    write_deltalake(path, pa.table({"id": [1], "new": [1]}), mode="append", schema_mode="merge")
    DeltaTable(path).restore(0)
    for number, operation in enumerate(("DELETE", "UPDATE", "MERGE", "WRITE overwrite"), 1):
        with pytest.raises(NoIncrementError, match=f"commit {number} of .* is a {operation}, which removes or alters rows"):
            added_rows(spark, path, number - 1, later=number)
    with pytest.raises(NoIncrementError, match="commit 5 of .* changes the table's schema, since version 4"):
        added_rows(spark, path, 4, later=5)
    with pytest.raises(NoIncrementError, match="commit 6 of "):
        added_rows(spark, path, 5)
    with pytest.raises(NoIncrementError, match="is older than 5"):
        added_rows(spark, path, 5, later=2)
    write_deltalake(f"{path}/other", IDS)
    with pytest.raises(NoIncrementError, match="were of another table"):
        delta(path).since(spark, delta(f"{path}/other").identity(spark))
    with pytest.raises(NoIncrementError, match="were not those of a Delta table"):
        delta(path).since(spark, ())
    DeltaTable(path).create_checkpoint()
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(NoIncrementError, match="commit 2 of .* is no longer in its log"):
        added_rows_of(spark, path, 1)


def added_rows_of(spark: SparkSession, path: str, version: int) -> None:
    (latest,) = delta(path).identity(spark)
    from dataclasses import replace

    delta(path).since(spark, (replace(latest, checksum=f"{latest.checksum.partition('@')[0]}@{version}"),))

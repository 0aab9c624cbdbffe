"""Iceberg through ETL: a snapshot is a version, whatever is committed meanwhile, and the rows that came after it are read alone."""

import threading
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_tables import HandmadeTable, field
from pyspark.sql import SparkSession
from tables import raw_table, read_tables, source

from pipelines.config import parse
from pipelines.data.sources.base import NoIncrementError
from pipelines.data.sources.source_errors import source_errors
from pipelines.data.versions.versions import Version, open_version
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.run import run

FIELDS = (field(1, "id", "long"), field(2, "weight", "double"), field(3, "member", "boolean"))
IDS = {"id": 1, "weight": 2, "member": 3}


def people(start: int, rows: int) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "weight": [number / 2 for number in numbers],
            "member": [number % 2 == 0 for number in numbers],
        }
    )


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def pipeline(folder: Path, path: str, **table: Any) -> dict[str, Any]:
    return {
        "name": "people",
        "source": {"tables": {"people": {"format": "iceberg", "path": path, **table}}},
        "dataset": {
            "path": str(folder / "data"), "key": ["id"], "features": {"weight": "standardize"}, "target": {"member": "binary"},
            "passthrough": {"id": "identity"},
        },
        "task": {"kind": "tabular"},
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }  # fmt: skip


@pytest.mark.full
def test_p6_a_snapshot_is_a_version_while_others_write(spark: SparkSession, tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "table", FIELDS)
    first_file = table.data(people(0, 400), IDS)
    first = table.commit("append", [first_file])
    stops = threading.Event()

    ids = [set(range(400))]

    def write() -> None:
        """Upserts: each commit deletes three rows, and writes 50, of which one has the key of a deleted one."""
        while not stops.wait(0.3):
            number = len(ids)
            written, removed = {*range(number * 1_000, number * 1_000 + 50)}, {number, number + 1, (number - 1) * 1_000 + 7}
            ids.append((ids[-1] - removed) | written)
            table.commit("overwrite", [table.data(people(number * 1_000, 50), IDS), table.equality_deletes(keys(*removed), {"id": 1})])

    writer = threading.Thread(target=write)
    values = pipeline(tmp_path, table.path, snapshot=first)
    writer.start()
    try:
        pinned = run(parse(values, "people.yaml"))
        newest = run(parse(pipeline(tmp_path, table.path), "people.yaml"))
    finally:
        stops.set()
        writer.join()
    assert sum(split.rows for split in pinned.splits.values()) == 400 and not pinned.quarantined
    assert run(parse(values, "people.yaml")).created == pinned.created
    version = open_version(f"{tmp_path}/data", parse(pipeline(tmp_path, table.path), "people.yaml").data_identity)
    assert version.manifest.version == newest.version != pinned.version
    (source_file,) = version.sources()["people"]
    chosen = int(source_file.checksum.partition("@")[2])
    assert source_file.checksum == f"iceberg:{table.uuid}@{chosen}" and chosen > first
    assert sum(split.rows for split in newest.splits.values()) == len(ids[chosen - first])
    assert read_ids(version) == ids[chosen - first]


def read_ids(version: Version) -> set[int]:
    tables = [pq.ParquetFile(file).read() for file in Path(version.root).rglob("split=*/**/*.parquet")]  # raw rows and hashes of keys too
    return {row_id for table in tables if "id" in table.column_names for row_id in table.column("id").to_pylist()}


def test_rows_that_came_since_are_read_alone(spark: SparkSession, tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, FIELDS, version=3)
    files = [table.data(people(start, 10), IDS) for start in (0, 10)]
    table.commit("append", files)
    settings = {"format": "iceberg", "path": table.path}
    earlier = raw_table(settings).identity(spark)
    assert raw_table(settings).since(spark, earlier) is None
    new = table.data(people(20, 5), IDS)
    table.commit("append", [new])
    table.commit("replace", [table.data(people(0, 25), IDS)], [*files, new])
    added = raw_table(settings).since(spark, earlier)
    assert added is not None
    rows = added.rows(spark)
    assert sorted(row["id"] for row in rows.rows.collect()) == [20, 21, 22, 23, 24] and rows.count == 5
    assert added.identity(spark) == raw_table(settings).identity(spark) != earlier
    table.commit("delete", table.vectors({table.files[0]["file_path"]: [3]}))
    with pytest.raises(NoIncrementError, match="is delete, so rows may be gone"):
        raw_table(settings).since(spark, earlier)
    with pytest.raises(NoIncrementError, match="not made of a snapshot"):
        raw_table(settings).since(spark, ())


def test_values_of_all_types_reach_spark(spark: SparkSession, tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [field(11, "a b", "int"), field(12, "c", "timestamptz")]}
    fields = [
        *(field(1, "day", "date"), field(2, "local", "timestamp"), field(3, "moment", "timestamptz"), field(4, "fine", "timestamptz_ns")),
        *(field(5, "clock", "time"), field(6, "key", "uuid"), field(7, "x.y", "decimal(20, 3)"), field(8, "s", inner)),
        field(9, "nothing", "unknown"),
        field(10, "tags", {"type": "map", "key-id": 13, "key": "string", "value-id": 14, "value": "long", "value-required": False}),
    ]  # fmt: skip
    moment = datetime(1969, 7, 20, 20, 17, 40, 5, tzinfo=UTC)
    kinds = [
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns", "UTC"),
        pa.time64("us"),
        pa.binary(16),
        pa.decimal128(20, 3),
    ]
    values = [date(1969, 7, 20), moment.replace(tzinfo=None), moment, moment, 5, bytes(16), 12]
    columns = {part["name"]: pa.array([value, None], kind) for part, value, kind in zip(fields, values, kinds, strict=False)}
    struct = pa.struct(
        [
            pa.field("a b", pa.int32(), metadata={"PARQUET:field_id": "11"}),
            pa.field("c", pa.timestamp("us", "UTC"), metadata={"PARQUET:field_id": "12"}),
        ]
    )
    tags = pa.map_(
        pa.field("key", pa.string(), False, {"PARQUET:field_id": "13"}), pa.field("value", pa.int64(), metadata={"PARQUET:field_id": "14"})
    )
    columns |= {"s": pa.array([{"a b": 1, "c": moment}, None], struct), "nothing": pa.nulls(2), "tags": pa.array([[("k", 1)], None], tags)}
    table = HandmadeTable(tmp_path, fields, version=3)
    table.commit("append", [table.data(pa.table(columns), {part["name"]: part["id"] for part in fields})])
    read_tables(spark, source(t={"format": "iceberg", "path": table.path}))
    names = ("day", "local", "moment", "fine", "clock", "key", "`x.y`", "s.`a b`", "s.c", "nothing", "tags['k']")
    view = spark.table("t").selectExpr(*[f"CAST({name} AS STRING) AS c{number}" for number, name in enumerate(names)])
    nulls, texts = view.orderBy("c0").collect()
    time = "1969-07-20 20:17:40.000005"
    day, clock, key = "1969-07-20", "00:00:00.000005", "00000000-0000-0000-0000-000000000000"
    assert tuple(texts) == (day, time, time, time, clock, key, "12.000", "1", time, None, "1")
    assert tuple(nulls) == (None,) * len(names)
    assert dict(spark.table("t").dtypes)["local"] == "timestamp_ntz" and dict(spark.table("t").dtypes)["moment"] == "timestamp"


def test_a_file_that_goes_away_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, FIELDS)
    table.commit("append", [table.data(people(0, 3), IDS)])
    Path(table.files[0]["file_path"]).unlink()
    settings = source(t={"format": "iceberg", "path": table.path})
    read_tables(spark, settings)
    with pytest.raises(SourceError, match=r"data/00001-\S+ is missing, which the table's metadata name") as error, source_errors(settings):
        spark.table("t").collect()
    assert "\n" not in str(error.value)


def test_without_pyiceberg_the_error_says_what_to_install(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.formats.iceberg.library.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"source.tables.t: Iceberg needs pyiceberg.*pip install 'lockstep-pipelines\[iceberg\]'"):
        raw_table({"format": "iceberg", "path": "x"}).empty(spark)


def test_many_files_in_many_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path, FIELDS)
    files = [table.data(people(start, 100), IDS, row_group_size=9) for start in range(0, 2_000, 100)]
    table.commit("append", files)
    table.commit("delete", [table.position_deletes({file["file_path"]: range(0, 100, 10) for file in files})])
    tables = read_tables(spark, source(t={"format": "iceberg", "path": table.path}))
    assert tables.parsed == {"t": 1_800}
    assert Counter(row["id"] for row in spark.table("t").collect()) == Counter(number for number in range(2_000) if number % 10)

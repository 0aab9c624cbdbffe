"""Data sources and tables that Spark itself knows, identified by a hash of their rows, or by the snapshot that their options name."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from tables import raw_table, read_tables, source, view_rows

from pipelines.data.sources.base import RawTable
from pipelines.errors import ConfigError, SourceError
from pipelines.formats.spark_source.frame_hash import hash_frame, hashable_parts
from pipelines.formats.spark_source.table import SparkSource

NESTED = "id long, tags array<string>, inner struct<a: int, b: array<array<int>>>, map map<string, map<string, double>>, raw binary"


def make_nested_rows(**changes: Any) -> list[Row]:
    first = {"id": 1, "tags": ["a", None], "inner": (1, [[1], [2]]), "map": {"x": {"y": 1.0, "z": None}, "w": None}, "raw": b"\0"}
    second = {"id": None, "tags": None, "inner": None, "map": {}, "raw": None}
    return [Row(**{**first, **changes}), Row(**second)]


def identify(spark: SparkSession, settings: dict[str, Any]) -> str:
    (file,) = raw_table({"format": "spark", **settings}).identity(spark)
    return file.checksum


def test_the_hash_is_that_of_the_rows_in_any_order(spark: SparkSession) -> None:
    rows = spark.createDataFrame(make_nested_rows(), NESTED)
    swapped = spark.createDataFrame(make_nested_rows(map={"w": None, "x": {"z": None, "y": 1.0}})[::-1], NESTED).repartition(3)
    assert hash_frame(rows) == hash_frame(swapped)
    assert hash_frame(rows)[0] == 2
    assert hash_frame(rows.limit(0))[0] == 0


def test_any_other_value_changes_the_hash_of_a_row(spark: SparkSession) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"id": 2},
        {"id": None, "raw": b"\1"},
        {"tags": ["a"]},
        {"tags": [None, "a"]},
        {"tags": ["a", ""]},
        {"inner": (1, [[1, 2]])},
        {"inner": (1, [[1], [2], []])},
        {"inner": (None, [[1], [2]])},
        {"map": {"x": {"y": 1.0, "z": 0.0}, "w": None}},
        {"map": {"x": {"y": 1.0, "z": None}, "w": {}}},
        {"raw": b""},
        {"raw": None},
    ]
    rows = spark.createDataFrame([make_nested_rows(**change)[0] for change in changes], NESTED)
    parts = [part for field in rows.schema for part in hashable_parts(F.col(field.name), field.dataType)]
    assert len({row[0] for row in rows.select(F.xxhash64(*parts)).collect()}) == len(changes)


def test_rows_that_are_repeated_or_swap_columns_change_the_hash(spark: SparkSession) -> None:
    def compute_hash(rows: list[tuple[int | None, int | None]], schema: str = "a int, b int") -> tuple[int, str]:
        return hash_frame(spark.createDataFrame(rows, schema))

    hashes = [
        compute_hash([(None, 5)]),
        compute_hash([(5, None)]),
        compute_hash([(5, None), (5, None)]),
        compute_hash([(5, None), (5, None), (1, 1), (1, 1)]),
        compute_hash([(1, 1), (1, 1), (1, 1), (5, None)]),
        compute_hash([(5, None)], "b int, a int"),
    ]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("kind", ["orc", "parquet"])
def test_a_data_source_is_identified_by_its_rows(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rows")
    spark.range(100).selectExpr("id", "id % 7 AS rest").write.format(kind).save(path)
    settings = {"source": kind, "options": {"path": path}}
    before = identify(spark, settings)
    spark.read.format(kind).load(path).repartition(3).write.format(kind).save(f"{path}-again")
    assert identify(spark, {"source": kind, "options": {"path": f"{path}-again"}}) == before
    spark.range(1).selectExpr("id", "id AS rest").write.format(kind).mode("append").save(path)
    assert identify(spark, settings) != before
    tables = read_tables(spark, source(t={"format": "spark", **settings}))
    assert tables.parsed == {"t": 101} and len(view_rows(spark)) == 101


def test_a_table_of_the_catalog_is_read(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE default.orders USING orc LOCATION '{tmp_path}/orders' AS SELECT id, id * 2 AS price FROM range(9)")
    try:
        tables = read_tables(spark, source(orders={"format": "spark", "table": "spark_catalog.default.orders"}))
        assert tables.parsed == {"orders": 9} and view_rows(spark, "orders")[-1] == (8, 16)
        assert raw_table({"format": "spark", "table": "default.orders"}).empty(spark).columns == ["id", "price"]
    finally:
        spark.sql("DROP TABLE spark_catalog.default.orders")
        spark.catalog.dropTempView("orders")


def test_a_database_is_read_over_jdbc(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Derby is inside Spark. The password comes from the environment."""
    url = "jdbc:derby:memory:orders;create=true"
    connection = {"url": url, "user": "app", "driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    spark.range(5).selectExpr("CAST(id AS int) AS id", "'x' AS name").write.format("jdbc").options(**connection, dbtable="orders").save()
    settings = {
        "format": "spark",
        "source": "jdbc",
        "options": {**connection, "dbtable": "orders"},
        "options_from": ["password=ORDERS_WORD"],
    }
    with pytest.raises(ConfigError, match=r"password is to be in the environment variable ORDERS_WORD, which is not set"):
        raw_table(settings).empty(spark)
    monkeypatch.setenv("ORDERS_WORD", "hidden")
    table = raw_table(settings)
    assert table.rows(spark).rows.count() == 5 == table.rows(spark).count
    assert "hidden" not in repr(table.identity(spark)) + str(table.settings)


def test_rows_that_change_while_they_are_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "rows")
    spark.range(10).write.orc(path)
    table = raw_table({"format": "spark", "source": "orc", "options": {"path": path}})
    assert table.state() == ()
    rows = table.rows(spark)
    assert rows.count == 10 and table.state() == ()
    (file,) = list(Path(path).glob("*.orc"))[:1]
    spark.range(3).coalesce(1).write.orc(f"{path}-other")
    (other,) = Path(f"{path}-other").glob("*.orc")
    file.write_bytes(other.read_bytes())
    for checksum in Path(path).glob(".*.crc"):
        checksum.unlink()
    assert table.state() == (), "what was read is on the executors' disks"
    rows.rows.unpersist(blocking=True)
    with pytest.raises(SourceError, match="changed while being read"):
        table.state()


def test_a_named_snapshot_is_not_read_for_its_identity(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "rows")
    spark.range(10).write.orc(path)

    def table(version: int) -> RawTable[Any]:
        opened = raw_table({"format": "spark", "source": "delta", "options": {"path": path, "versionAsOf": version}})
        assert isinstance(opened, SparkSource)
        opened._frame = spark.read.orc(path)  # no Delta for this Spark is to be had
        return opened

    (first,), (repeated,), (second,) = (table(version).identity(spark) for version in (3, 3, 4))
    assert first == repeated != second and first.checksum.startswith("spark:")
    assert table(3).rows(spark).count is None
    spark.range(10).write.mode("overwrite").orc(path)
    assert table(3).identity(spark) != (first,), "a table that is made anew has other files"


def test_a_source_that_spark_does_not_have_is_an_error_of_one_line(spark: SparkSession) -> None:
    for settings in ({"source": "nosuch"}, {"source": "orc", "options": {"path": "/no/such"}}, {"table": "default.nosuch"}):
        with pytest.raises(SourceError, match=r"^Spark cannot open .*; correct source, table and options") as error:
            raw_table({"format": "spark", **settings}).empty(spark)
        assert "\n" not in str(error.value)

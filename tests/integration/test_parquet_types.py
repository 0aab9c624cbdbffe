"""Parquet with columns that Spark does not read, or that have other types in other files: read where no value changes, or refused by
name."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tables import read_tables, source

from pipelines.data.sources.source_errors import source_errors
from pipelines.errors import SourceError

NANOSECONDS = [-1, 1_500, -1_500, 10**18 + 999, None]
FLOORED = [-1, 1, -2, 10**15, None]


def write_parquet(path: Path, **columns: Any) -> str:
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table(columns), path)
    return str(path)


def read_rows(spark: SparkSession, path: str, schema: str = "", **options: Any) -> list[tuple[Any, ...]]:
    read_tables(spark, source(t={"format": "parquet", "path": path, "schema": schema, "options": options}))
    return sorted((tuple(row) for row in spark.table("t").collect()), key=repr)


@pytest.mark.full
def test_one_column_that_spark_does_not_read_does_not_lock_the_others(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {
        "time64[us]": pa.array([5], pa.time64("us")),
        "time64[ns]": pa.array([5], pa.time64("ns")),
        "time32[ms]": pa.array([5], pa.time32("ms")),
        "float16": pa.array([np.float16(1.5)], pa.float16()),
    }
    for number, (kind, values) in enumerate(kinds.items()):
        path = write_parquet(tmp_path / f"{number}.parquet", a=[7], strange=values)
        assert read_rows(spark, path, "a long") == [(7,)]
        for schema in ("", "a long, strange double"):
            with pytest.raises(SourceError) as error:
                read_rows(spark, path, schema)
            assert str(error.value).startswith("source.tables.t: ")
            assert f"{number}.parquet: column strange is {kind}, which Spark does not read" in str(error.value)
    nested = write_parquet(tmp_path / "nested.parquet", a=[7], when=pa.array([[5]], pa.list_(pa.timestamp("ns"))))
    for schema in ("", "when array<timestamp>"):
        with pytest.raises(
            SourceError, match=r"column when.list.element is timestamp\[ns\], which Spark does not read inside another column"
        ):
            read_rows(spark, nested, schema)
    assert read_rows(spark, nested, "when array<bigint>") == [([5],)]


def test_nanoseconds_are_rounded_down_and_that_is_said(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_parquet(
        tmp_path / "ns.parquet", t=pa.array(NANOSECONDS, pa.timestamp("ns")), u=pa.array(NANOSECONDS, pa.timestamp("ns", "UTC"))
    )
    for schema in ("", "u timestamp, t timestamp_ntz"):
        read_tables(spark, source(t={"format": "parquet", "path": path, "schema": schema}))
        assert spark.table("t").select("t", "u").schema.simpleString() == "struct<t:timestamp_ntz,u:timestamp>"
        micros = spark.sql("SELECT unix_micros(CAST(t AS timestamp)) AS t, unix_micros(u) AS u FROM t").toArrow().to_pydict()
        assert micros == {"t": FLOORED, "u": FLOORED}
    assert "column t is timestamp[ns] in " in caplog.text
    assert "rounded down to microseconds" in caplog.text
    assert sorted(read_rows(spark, path, "t bigint"), key=repr) == sorted([(value,) for value in NANOSECONDS], key=repr)
    with pytest.raises(
        SourceError, match=r"column t is timestamp\[ns\], which Spark does not read as date, but as timestamp_ntz or bigint"
    ):
        read_rows(spark, path, "t date")


def test_columns_are_widened_where_no_value_can_change(spark: SparkSession, tmp_path: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    folder = tmp_path / "p a%20[1]"  # names that Spark would decode, or take as a pattern
    write_parquet(
        folder / "code=x" / "1.parquet", i=pa.array([1], pa.int32()), f=pa.array([0.1], pa.float32()), s=pa.nulls(1), t=pa.nulls(1)
    )
    write_parquet(folder / "code=y" / "2.parquet", i=pa.array([2**40]), f=[0.1], s=["x"], t=pa.array([now], pa.timestamp("ns", "UTC")))
    write_parquet(
        folder / "code=y" / "3.parquet", i=pa.array([3], pa.int8()), f=pa.nulls(1), s=["y"], t=pa.array([now], pa.timestamp("us", "UTC"))
    )
    path = str(folder).replace("[", "\\[").replace("]", "\\]")
    expected = [(1, float(np.float32(0.1)), None, None, "x"), (2**40, 0.1, "x", now, "y"), (3, None, "y", now, "y")]
    for schema in ("", "i long, f double, s string, t timestamp, code string"):
        read_tables(spark, source(t={"format": "parquet", "path": path, "schema": schema}))
        assert spark.table("t").schema.simpleString() == "struct<i:bigint,f:double,s:string,t:timestamp,code:string>"
        rows = [(*row[:3], row.t and row.t.astimezone(UTC), row.code) for row in spark.table("t").collect()]
        assert sorted(rows, key=repr) == sorted(expected, key=repr)
    write_parquet(folder / "code=z" / "4.parquet", i=[4])
    with pytest.raises(SourceError, match=r"differ in their columns: f .*, s .*, t .*or set options: {mergeSchema: true}"):
        read_rows(spark, path)
    assert (4, None, None, None, "z") in read_rows(spark, path, mergeSchema=True)
    assert len(read_rows(spark, path, "i long")) == 4


@pytest.mark.full
def test_names_with_dots_are_columns_of_their_own_and_null_may_be_nested_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    dotted = write_parquet(tmp_path / "dotted.parquet", **{"a": [7], "a.b": pa.array([5], pa.time64("us"))})
    assert read_rows(spark, dotted, "a long") == [(7,)]
    dotted = write_parquet(tmp_path / "ns.parquet", **{"a": [7], "a.b": pa.array([1_500], pa.timestamp("ns"))})
    assert read_rows(spark, dotted, "a long, `a.b` bigint") == [(7, 1_500)]
    assert len(read_rows(spark, dotted)) == 1
    write_parquet(tmp_path / "null" / "1.parquet", a=[1], n=pa.nulls(1))
    write_parquet(tmp_path / "null" / "2.parquet", a=[2], n=[[3]])
    for schema in ("", "a long, n array<bigint>"):
        assert read_rows(spark, str(tmp_path / "null"), schema) == [(1, None), (2, [3])]
    write_parquet(tmp_path / "nested" / "0.parquet", n=pa.nulls(1))
    write_parquet(tmp_path / "nested" / "1.parquet", n=pa.array([[1]], pa.list_(pa.int32())))
    write_parquet(tmp_path / "nested" / "2.parquet", n=[[2]])
    with pytest.raises(SourceError, match=r"2.parquet and .*1.parquet differ .*: n.list.element .*; make them tables of their own$"):
        read_rows(spark, str(tmp_path / "nested"))
    first, other = ({"format": "parquet", "path": str(tmp_path / "nested" / name)} for name in ("1.parquet", "2.parquet"))
    union = "SELECT CAST(n AS array<bigint>) AS n FROM first UNION ALL SELECT n FROM other"
    read_tables(spark, source(union, first=first, other=other))
    assert len(spark.sql(union).collect()) == 2, "of their own, with one type"


def test_types_without_a_common_one_are_named_with_a_cast_that_works(spark: SparkSession, tmp_path: Path) -> None:
    paths = [
        write_parquet(tmp_path / "1.parquet", a=[1]),
        write_parquet(tmp_path / "2.parquet", a=["x"]),
        write_parquet(tmp_path / "3.parquet", a=[0.5]),
    ]
    for pair, kind in (((0, 1), "string"), ((0, 2), "double")):
        with pytest.raises(SourceError) as error:
            read_tables(
                spark, source(t={"format": "parquet", "path": [paths[number] for number in pair], "options": {"mergeSchema": True}})
            )
        for part in (*[Path(paths[number]).name for number in pair], "column a is", f"SELECT CAST(a AS {kind}) AS a"):
            assert part in str(error.value)
        first, other = ({"format": "parquet", "path": paths[number]} for number in pair)
        union = f"SELECT CAST(a AS {kind}) AS a FROM first UNION ALL SELECT CAST(a AS {kind}) AS a FROM other"
        read_tables(spark, source(union, first=first, other=other))
        assert len(spark.sql(union).collect()) == 2


def test_a_file_named_twice_and_columns_that_differ_in_case_alone_are_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    def read(path: Any, schema: str = "") -> list[Any]:
        read_tables(spark, source(t={"format": "parquet", "path": path, "schema": schema}))
        return [tuple(row) for row in spark.table("t").collect()]

    columns = pa.table({"V": [1], "v": [2], "a": [3]})
    pq.write_table(columns, file := str(tmp_path / "x.parquet"))
    for schema in ("", "v bigint"):
        with pytest.raises(
            SourceError, match=r"x.parquet: columns V and v are one to Spark, which ignores case; .* rename one in the file"
        ):
            read(file, schema)
    assert read(file, "a bigint") == [(3,)]
    pq.write_table(columns.rename_columns(["V", "w", "a"]), file)
    for paths in ([file, file], [str(tmp_path), file]):
        with pytest.raises(SourceError, match=r"x.parquet is in several of the table's paths, .* name it in one of them"):
            read(paths)
    assert read([file]) == [(1, 2, 3)]  # named in one of the paths


def test_where_files_are_read_in_groups_the_error_about_metadata_names_file_column(spark: SparkSession, tmp_path: Path) -> None:
    for number, kind in enumerate((pa.int32(), pa.int64())):
        pq.write_table(pa.table({"v": pa.array([number], kind)}), tmp_path / f"{number}.parquet")
    table = {"format": "parquet", "path": str(tmp_path)}
    read_tables(spark, settings := source(query := "SELECT _metadata.file_name FROM t", t=table))
    with (
        pytest.raises(SourceError, match="of Parquet files with different types, there is no _metadata: set file_column"),
        source_errors(settings),
    ):
        spark.sql(query).collect()
    read_tables(spark, source(t={**table, "file_column": "file"}))
    assert sorted(row.file for row in spark.sql("SELECT file FROM t").collect()) == ["0.parquet", "1.parquet"]

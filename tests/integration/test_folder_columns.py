"""Folders `column=value` make columns of text, or of the declared type, in every format alike."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tables import raw_table, read_tables, source, view_rows, write

from pipelines.data.sources.files.folder_columns import NULL
from pipelines.errors import ConfigError, SourceError

CODES = ("00501", "501", "1", "01", "1.10", "1.1", "1e3", "1000", "2024-01-01", "true", "a b", "é", "__HIVE_DEFAULT_PARTITION__")
VALUES = [(number, None if code.startswith("__") else code) for number, code in enumerate(CODES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Equal rows in four formats: the number of each code, in a folder of the code's name."""
    folder = tmp_path_factory.mktemp("codes")
    for number, code in enumerate(CODES):
        place = f"code={code.replace(' ', '%20')}"
        for name, text in {"csv": f"{number}\n", "json": f'{{"i": {number}}}\n', "text": f"{number}\n"}.items():
            (folder / name / place).mkdir(parents=True)
            write(folder / name / place, f"a.{name}", text)
        (folder / "parquet" / place).mkdir(parents=True)
        pq.write_table(pa.table({"i": pa.array([number], pa.int32())}), folder / "parquet" / place / "a.parquet")
    return folder


def tables(folder: Path) -> dict[str, dict[str, Any]]:
    settings: dict[str, dict[str, Any]] = {
        name: {"format": name, "path": str(folder / name)} for name in ("parquet", "csv", "json", "text")
    }
    settings["csv"]["schema"] = "i int"
    settings["json"]["schema"] = "code string, i int"
    settings["text"]["schema"] = "i string"
    return settings


@pytest.mark.full
def test_p6_folders_make_columns_of_text_in_every_format(spark: SparkSession, folder: Path) -> None:
    read = read_tables(spark, source(**tables(folder)))
    assert read.malformed is None and set(read.handed_on.values()) == {len(CODES)}
    for name in ("parquet", "csv", "json", "text"):
        assert spark.table(name).columns == ["i", "code"] == raw_table(tables(folder)[name]).empty(spark).columns
        assert sorted((int(i), code) for i, code in spark.table(name).collect()) == VALUES, name


def test_p6_a_type_is_that_of_the_schema_and_not_that_of_the_values(spark: SparkSession, tmp_path: Path) -> None:
    for code in ("01", "2"):
        (tmp_path / f"csv/Code={code}").mkdir(parents=True)
        write(tmp_path / f"csv/Code={code}", "a.csv", f"{code},x\n")
        (tmp_path / f"parquet/Code={code}").mkdir(parents=True)
        pq.write_table(pa.table({"a": [code]}), tmp_path / f"parquet/Code={code}/a.parquet")
    typed = {"format": "csv", "path": f"{tmp_path}/csv", "schema": "a string, code int, b string"}
    columns = {"format": "parquet", "path": f"{tmp_path}/parquet", "schema": "a string, code int"}
    read_tables(spark, source(t=typed, p=columns))
    assert view_rows(spark) == [("01", "x", 1), ("2", "x", 2)] and view_rows(spark, "p") == [("01", 1), ("2", 2)]
    before = list(raw_table(typed).identity_lines(raw_table(typed).identity(spark), ()))
    for name in ("csv", "parquet"):
        (tmp_path / f"{name}/Code=2").rename(tmp_path / f"{name}/Code=2D")
    assert before != list(raw_table(typed).identity_lines(raw_table(typed).identity(spark), ()))
    for table in (typed, columns):
        with pytest.raises(SourceError, match=r"lies in code=2D, which is not (int|double); declare code as string in its schema"):
            read_tables(spark, source(t={**table, "schema": str(table["schema"]).replace("code int", "code double")}))
    read_tables(spark, source(t={**typed, "schema": "a string, code string, b string"}))  # the remedy
    assert view_rows(spark) == [("01", "x", "01"), ("2", "x", "2D")]


@pytest.mark.full
def test_folders_that_differ_and_globs(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("code=1/day=2", "code=3"):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name, "a.csv", "1\n")
    table = {"format": "csv", "path": str(tmp_path), "schema": "a int"}
    with pytest.raises(SourceError, match=r"in folders of the columns code, day, and \S+ in those of code; .* list the files as paths"):
        read_tables(spark, source(t=table))
    files = [f"{tmp_path}/code=1/day=2/a.csv", f"{tmp_path}/code=3/a.csv"]
    for path, rows in ((files, [(1,), (1,)]), (f"{tmp_path}/*/*.csv", [(1,)]), (f"{tmp_path}/code=1*", [(1, "2")])):
        read_tables(spark, source(t={**table, "path": path}))
        assert view_rows(spark) == rows
    with pytest.raises(ConfigError, match=r"^source.tables.t.schema: folders make all of its columns"):
        read_tables(spark, source(t={**table, "path": f"{tmp_path}/code=1", "schema": "day int"}))
    read_tables(spark, source(t={**table, "path": f"{tmp_path}/code=1", "schema": "day int, a int"}))  # names those of the records too
    assert view_rows(spark) == [(1, 2)]
    (tmp_path / "only/code=").mkdir(parents=True)
    write(tmp_path / "only/code=", "b.csv", "2\n")
    with pytest.raises(SourceError, match=re.escape("lies in a folder without a value of code; name the folder code=__HIVE_DEFAULT")):
        read_tables(spark, source(t={**table, "path": f"{tmp_path}/only"}))
    (tmp_path / "only/code=").rename(tmp_path / f"only/code={NULL}")
    read_tables(spark, source(t={**table, "path": f"{tmp_path}/only"}))
    assert view_rows(spark) == [(2, None)]


@pytest.mark.parametrize("path", ["", "/*/*", "/*/*/a.*", "/code=1*", "/{code=2,other}", "/code=1/day=1/a.{}"])
def test_the_folders_of_every_format_are_those_of_spark_s_parquet(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """Folders below the path, or below the matches of its glob. (Spark refuses a glob of folders that lie beside each other.)"""
    for name in ("code=1/day=1", "code=2/day=1"):
        for kind in ("csv", "parquet"):
            (tmp_path / kind / name).mkdir(parents=True)
        write(tmp_path / "csv" / name, "a.csv", "1\n")
        pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "parquet" / name / "a.parquet")
    columns = {}
    for kind in ("csv", "parquet"):
        place = f"{tmp_path}/{kind}{path.replace('{}', kind)}"
        columns[kind] = raw_table({"format": kind, "path": place, **({"schema": "a int"} if kind == "csv" else {})}).empty(spark).columns
    assert columns["csv"] == columns["parquet"] == spark.read.parquet(f"{tmp_path}/parquet{path.replace('{}', 'parquet')}").columns

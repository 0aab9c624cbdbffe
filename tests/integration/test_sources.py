"""Every format becomes a view; what cannot be read is an error that names the table and the path, or is kept apart."""

import gzip
import struct
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from raw import raw

from pipelines.config.source import Source
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.checksums import checksums
from pipelines.etl.sources import Tables, read_tables, source_errors


def source(query: str = "SELECT 1", **tables: dict[str, Any]) -> Source:
    return Source.model_validate({"tables": tables, "query": query})


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def rows_of(spark: SparkSession, view: str = "t") -> list[tuple]:
    return sorted((tuple(row) for row in spark.table(view).collect()), key=repr)


def malformed(tables: Tables) -> list[tuple]:
    assert tables.malformed is not None
    return sorted(tuple(row) for row in tables.malformed.collect())


def test_malformed_csv_records_are_kept_apart(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '1,x\n2,y,z\n\n3\nfour,y\n5,"a, ""b"""\n6,y"\n')
    tables = read_tables(spark, source(t={"format": "csv", "path": path, "schema": "a int, b string"}))
    assert rows_of(spark) == [(1, "x"), (5, 'a, "b"')]
    columns = "t: not a csv record of these 2 columns"
    quotes = "t: quote that is stray, or does not close on its line"
    assert [(reason.split(" (")[0], record, where) for reason, record, where in malformed(tables)] == [
        (columns, "2,y,z", f"{path}:2"),
        (columns, "3", f"{path}:4"),
        (columns, "four,y", f"{path}:5"),
        (quotes, '6,y"', f"{path}:7"),
    ]
    assert tables.rows_parsed == 6
    assert sum(tables.refused.values()) == 4


def test_a_query_of_one_column_makes_no_rows_of_malformed_records(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "1,x\n2\n3,x,y\n,\nz,x\n")
    read_tables(spark, source(t={"format": "csv", "path": path, "schema": "a int, b string"}))
    assert [row.b for row in spark.sql("SELECT b FROM t ORDER BY a").collect()] == [None, "x"]


def test_files_are_cut_anywhere_and_no_line_is_lost(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.etl.sources.TASK_BYTES", (20_000, 20_000))
    lines = [f"{number},{'x' * (number % 97)}" for number in range(3_000)]
    lines[2_000] = "bad"
    path = write(tmp_path, "a.csv", "a,b\n" + "\n".join(lines))
    tables = read_tables(spark, source(t={"format": "csv", "path": path, "schema": "a int, b string", "options": {"header": True}}))
    assert [number for number, _ in sorted(rows_of(spark))] == [number for number in range(3_000) if number != 2_000]
    ((_, record, where),) = malformed(tables)
    line, start = map(int, where.removeprefix(f"{path}:").split("+"))
    after = Path(path).read_text()[start - 1 :].partition("\n")[2]
    assert record == after.splitlines()[line - 1] == "bad"


def test_csv_options(spark: SparkSession, tmp_path: Path) -> None:
    text = "made by hand\nname;born;size\n'Bj\xf6rk; singer\non stage'; 21.11.1965;?\n"
    options = {
        "skipRows": 1, "header": True, "sep": ";", "quote": "'", "encoding": "ISO-8859-1", "multiLine": True,
        "dateFormat": "dd.MM.yyyy", "nullValue": "?", "ignoreLeadingWhiteSpace": True,
    }  # fmt: skip
    path = write(tmp_path, "a.csv", text.encode("latin-1"))
    read_tables(spark, source(t={"format": "csv", "path": path, "schema": "name string, born date, size double", "options": options}))
    ((name, born, size),) = rows_of(spark)
    assert (name, str(born), size) == ("Björk; singer\non stage", "1965-11-21", None)


def test_a_header_must_name_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "b,a\n1,2\n")
    table = {"format": "csv", "path": path, "schema": "a int, b int", "options": {"header": True}}
    with pytest.raises(SourceError, match=r"^source.tables.t: \S+a.csv has columns b, a; its schema has a, b"):
        read_tables(spark, source(t=table))
    read_tables(spark, source(t=table | {"options": {"header": True, "enforceSchema": True}}))
    assert rows_of(spark) == [(1, 2)]


def test_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        '{"a": 1, "b": {"c": [1.5]}}', '{"a": null}', '{"a": "1"}', '{"a": 1} {"a": 2}', '{"a": 1}}', "[]", "null", '{"a": 01}',
        '{"b": {"c": [NaN]}}', "{'a': 1}", '{"z": [1,]}', '{"a": 1',
    ]  # fmt: skip
    path = write(tmp_path, "a.json", "\n".join(lines))
    tables = read_tables(spark, source(t={"format": "json", "path": path, "schema": "a int, b struct<c: array<double>>"}))
    assert [(row.a, row.b and row.b.c) for row in spark.table("t").collect()] == [(1, [1.5]), (None, None)]
    assert [record for _, record, _ in malformed(tables)] == sorted(lines[2:])


def test_a_json_document(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '[{"a": 0.1000000000000000055},\n {"a": "x"}]')
    tables = read_tables(spark, source(t={"format": "json", "path": path, "schema": "a decimal(30, 20)", "options": {"multiLine": True}}))
    assert [str(row.a) for row in spark.table("t").collect()] == ["0.10000000000000000550"]
    assert malformed(tables) == [("t: not a JSON object of these columns' types", '{"a": "x"}', f"{path}:2")]


def test_text_and_whole_files(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one\n\nthree")
    read_tables(spark, source(t={"format": "text", "path": path}, u={"format": "text", "path": path, "options": {"wholetext": True}}))
    assert rows_of(spark) == [("",), ("one",), ("three",)]
    assert rows_of(spark, "u") == [("one\n\nthree",)]
    read_tables(spark, source(t={"format": "binaryFile", "path": f"{tmp_path}/*.txt"}))
    assert [bytes(row.content) for row in spark.table("t").collect()] == [b"one\n\nthree"]


def test_compressed_files_and_globs(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "1.csv.gz", gzip.compress(b"1\n2\n") + gzip.compress(b"3\n"))
    write(tmp_path, "2.csv", "4\n")
    write(tmp_path, "_hidden.csv", "5\n")
    write(tmp_path, "3.csv", "")
    for path in (
        str(tmp_path),
        f"{tmp_path}/*.csv*",
        f"file://{tmp_path}/[12].{{csv,csv.gz}}",
        [f"{tmp_path}/1.csv.gz", f"{tmp_path}/2.csv"],
    ):
        read_tables(spark, source(t={"format": "csv", "path": path, "schema": "a int"}))
        assert rows_of(spark) == [(1,), (2,), (3,), (4,)]
    write(tmp_path, "1.csv.gz", gzip.compress(b"1\n2\n" * 1000)[:-12])
    with pytest.raises(SourceError, match=r"source.tables.t: \S+1.csv.gz cannot be read"):
        read_tables(spark, source(t={"format": "csv", "path": str(tmp_path), "schema": "a int"}))


@pytest.mark.parametrize(
    "table", [{"format": "csv", "schema": "a int"}, {"format": "parquet"}, {"format": "idx"}, {"format": "binaryFile"}]
)
def test_a_missing_path_is_named(spark: SparkSession, tmp_path: Path, table: dict[str, str]) -> None:
    with pytest.raises(SourceError, match=rf"^source.tables.people: {tmp_path}/nowhere"):
        read_tables(spark, source(people={**table, "path": f"{tmp_path}/nowhere"}))


def test_a_table_without_rows_is_named(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(0).write.parquet(f"{tmp_path}/empty")
    (tmp_path / "folder").mkdir()
    path = write(tmp_path, "a.csv", "a\n")
    for table in (
        {"format": "csv", "path": path, "schema": "a int", "options": {"header": True}},
        {"format": "csv", "path": f"{tmp_path}/folder", "schema": "a int"},
        {"format": "parquet", "path": f"{tmp_path}/empty"},
    ):
        with pytest.raises(SourceError, match=rf"^source.tables.people: {table['path']}(: no file in this folder| holds no rows)"):
            read_tables(spark, source(people=table))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"options": {"nulValue": "?"}}, "source.tables.t.options.nulValue: csv has no such option; nullValue is near"),
        ({"options": {"mode": "DROPMALFORMED"}}, "source.tables.t.options.mode: csv has no such option"),
        ({"schema": "a itn"}, "source.tables.t.schema: .*ITN"),
        ({"options": {"quote": "ab"}}, "source.tables.t.options.quote: one ASCII character"),
        ({"options": {"encoding": "UTF-7.5"}}, "source.tables.t.options.encoding: unknown encoding"),
    ],
)
def test_options_that_no_one_would_obey_are_refused(spark: SparkSession, tmp_path: Path, table: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_tables(spark, source(t={"format": "csv", "path": write(tmp_path, "a.csv", "1\n"), "schema": "a int", **table}))


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
    assert rows_of(spark) == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT CAST(b AS int) FROM t", 'source.query.* cannot be cast to "INT".*`try_cast`.*CAST\\(b AS int\\)'),
        ("SELECT a / (a - 1) FROM t", "source.query.*Division by zero.*`try_divide`"),
        ("SELECT to_date(b, 'yyyy') FROM t", "source.query.*`try_to_date`"),
        ("SELECT c FROM t", "source.query.*`c` cannot be resolved.*`a`, `b`"),
        ("SELECT a FROM nowhere", "source.query.*`nowhere` cannot be found"),
        ("SELEKT a FROM t", "source.query.*Syntax error at or near 'SELEKT'"),
    ],
)
def test_faults_of_the_query_are_told_in_a_line(spark: SparkSession, tmp_path: Path, query: str, message: str) -> None:
    config = source(query, t={"format": "csv", "path": write(tmp_path, "a.csv", "1,x\n2,y\n"), "schema": "a int, b string"})
    read_tables(spark, config)
    with pytest.raises(SourceError, match=message) as caught, source_errors(config):
        spark.sql(query).collect()
    assert "\n" not in str(caught.value)
    assert "Exception" not in str(caught.value)


def test_other_errors_pass(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), source_errors(source(t={"format": "text", "path": "x"})):
        _ = 1 // 0


def idx(code: int, shape: tuple[int, ...], values: bytes) -> bytes:
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, code, len(shape), *shape) + values


def test_idx_files_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    images = write(tmp_path, "images", idx(0x08, (3, 2, 2), bytes(range(12))))
    labels = write(tmp_path, "labels.gz", gzip.compress(idx(0x0B, (3,), struct.pack(">3h", 7, -8, 9))))
    tables = read_tables(spark, source(t={"format": "idx", "path": [images, labels], "schema": "row long, image binary, label int"}))
    assert tables.parsed == {"t": 3}
    assert [(row, bytes(image), label) for row, image, label in rows_of(spark)] == [
        (0, b"\0\1\2\3", 7),
        (1, b"\4\5\6\7", -8),
        (2, b"\x08\x09\x0a\x0b", 9),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(0x08, (3,), b"ab"), "is truncated: its header promises 3 rows, 2 are there"),
        (idx(0x08, (3,), b"abcd"), "goes on after the 3 rows"),
        (b"PNG...", "is not an IDX file: it begins with 50 4e 47 2e"),
        (b"", "is not an IDX file: it begins with nothing"),
        (idx(0x08, (2, 2), b"")[:9], "is truncated: 2 dimensions are promised"),
        (idx(0x08, (2, 2), b"abcd"), "holds binary per row, and its column value is int"),
        (gzip.compress(idx(0x08, (3,), b"abc"))[:-9], "cannot be read|is truncated"),
    ],
)
def test_what_is_not_idx_is_named(spark: SparkSession, tmp_path: Path, content: bytes, message: str) -> None:
    path = write(tmp_path, "x.gz" if content[:1] == b"\x1f" else "x", content)
    with pytest.raises(SourceError, match=f"^source.tables.t: {path} ({message})"):
        read_tables(spark, source(t={"format": "idx", "path": path, "schema": "value int"}))


def test_a_file_inside_a_package(spark: SparkSession) -> None:
    digits = {"format": "package", "path": "package://sklearn/datasets/data/digits.csv.gz"}
    pixels = ", ".join(f"p{number} int" for number in range(64))
    tables = read_tables(spark, source(t={**digits, "schema": f"{pixels}, label int"}))
    assert tables.parsed == {"t": 1797}
    assert spark.sql("SELECT sum(p10), sum(label) FROM t").first() == (18657, 8070)
    iris = {"format": "package", "path": "package://sklearn/datasets/data/iris.csv", "options": {"skipRows": 1}}
    assert read_tables(spark, source(t={**iris, "schema": "a double, b double, c double, d double, kind int"})).parsed == {"t": 150}
    with pytest.raises(SourceError, match=r"source.tables.t: package://sklearn/datasets/none.csv cannot be read"):
        read_tables(spark, source(t={"format": "package", "path": "package://sklearn/datasets/none.csv", "schema": "a int"}))
    table = source(t={**digits, "schema": "a int"}).tables["t"]
    assert [file.bytes for file in checksums(spark, table)] == [57523]


def test_checksums_are_of_the_bytes(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "x")
    write(tmp_path, "a.txt", "hello")
    table = source(t={"format": "text", "path": str(tmp_path)}).tables["t"]
    first, second = checksums(spark, table)
    assert (first.path, first.bytes) == (f"{tmp_path}/a.txt", 5)
    assert first.checksum == "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert second.path == f"{tmp_path}/b.txt"
    by_stat = table.model_copy(update={"checksum": "stat"})
    before = checksums(spark, by_stat)
    assert before == checksums(spark, by_stat)
    write(tmp_path, "b.txt", "changed")
    assert before[0] == checksums(spark, by_stat)[0]
    assert before[1] != checksums(spark, by_stat)[1]
    with pytest.raises(SourceError, match="nowhere: no such file"):
        checksums(spark, table.model_copy(update={"path": f"{tmp_path}/nowhere"}))


def test_real_tables(spark: SparkSession) -> None:
    adult = (
        "age int, workclass string, fnlwgt int, education string, education_num int, marital_status string, occupation string, "
        "relationship string, race string, sex string, gain int, loss int, hours int, country string, income string"
    )
    options = {"ignoreLeadingWhiteSpace": True, "nullValue": "?"}
    files = [str(raw("mnist", f"train-{kind}.gz")) for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    tables = read_tables(
        spark,
        source(
            adult={"format": "csv", "path": f"{raw('adult')}/adult-*.csv", "schema": adult, "options": options},
            mnist={"format": "idx", "path": files},
        ),
    )
    assert tables.parsed == {"adult": 48_842, "mnist": 60_000}
    assert tables.refused == {}
    found = spark.sql("SELECT count(workclass), sum(age), min(income), max(income) FROM adult").first()
    assert found is not None and tuple(found) == (46_043, 1_887_430, "<=50K", ">50K.")
    found = spark.sql("SELECT sum(label), min(length(image)), max(length(image)) FROM mnist").first()
    assert found is not None and tuple(found) == (267_236, 784, 784)
    tables.release()

"""Text of every format becomes a view; what cannot be read is an error that names the table and the path, or is kept apart."""

import gzip
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from raw import raw
from tables import read_tables, source, view_rows, write

from pipelines.data.sources.tables import Tables
from pipelines.errors import ConfigError, SourceError


def malformed_records(tables: Tables) -> list[tuple]:
    assert tables.malformed is not None
    return sorted(tuple(row) for row in tables.malformed.collect())


def test_malformed_csv_records_are_kept_apart(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", '1,x\n2,y,z\n\n3\nfour,y\n5,"a, ""b"""\n6,y"\n')
    tables = read_tables(spark, source(t={"format": "csv", "path": path, "schema": "a int, b string"}))
    assert view_rows(spark) == [(1, "x"), (5, 'a, "b"')]
    quotes = "t: quote that is stray, or does not close on its line"
    assert [(reason.split(" (")[0], record, where) for reason, record, where in malformed_records(tables)] == [
        ("t: a is not int", "four,y", f"{path}:5"),
        ("t: more than 2 columns", "2,y,z", f"{path}:2"),
        ("t: one column in place of 2: not separated by ','", "3", f"{path}:4"),
        (quotes, '6,y"', f"{path}:7"),
    ]
    assert tables.rows_parsed == 6
    assert tables.rows_parsed - sum(tables.handed_on.values()) == 4


WRONG = {
    "1,0.067,x,2020-01-01,7,true": "sh is not int",
    "1,2,x,01.01.2020,7,true": "day is not date",
    "1,2,x,2020-01-01,700,true": "price is not decimal(4,2)",
    "1,2,x,2020-01-01,7,maybe": "ok is not boolean",
    '"1, one",2,"x,y",2020-01-01,7,true': "id is not bigint",
    "a,b,c,d,e,f": "id is not bigint",
    "1,2,x": "fewer than 6 columns",
    "1,2,x,,": "fewer than 6 columns",
    "1,2,x,2020-01-01,7,true,": "more than 6 columns",
    "1,2,x,2020-01-01,7,true,8,9": "more than 6 columns",
    "1;2;x;2020-01-01;7;true": "one column in place of 6: not separated by ','",
}
RIGHT = ["1,2,x,2020-01-01,7,true", ",,,,,", '"1","2","x,y","2020-01-01","7.25","false"', "1,?,x,?,?,?"]


def test_a_malformed_record_s_reason_names_column_and_type_or_what_its_columns_are(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "\n".join([*WRONG, *RIGHT]))
    schema = "id bigint, sh int, s string, day date, price decimal(4,2), ok boolean"
    tables = read_tables(spark, source(t={"format": "csv", "path": path, "schema": schema, "options": {"nullValue": "?"}}))
    assert {record: reason.removeprefix("t: ") for reason, record, _ in malformed_records(tables)} == WRONG
    assert len(view_rows(spark)) == len(RIGHT)


def test_a_table_s_name_may_have_spaces_and_be_a_word_of_sql(spark: SparkSession, tmp_path: Path) -> None:
    table = {"format": "csv", "path": write(tmp_path, "a.csv", "1\n"), "schema": "a int"}
    for name in ("my first-table", "select", "2024", "Tür"):
        alone = source("", **{name: table})
        read_tables(spark, alone)
        assert [row.a for row in spark.sql(alone.sql).collect()] == [1]


def test_a_query_of_one_column_makes_no_rows_of_malformed_records(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "1,x\n2\n3,x,y\n,\nz,x\n")
    read_tables(spark, source(t={"format": "csv", "path": path, "schema": "a int, b string"}))
    assert [row.b for row in spark.sql("SELECT b FROM t ORDER BY a").collect()] == [None, "x"]


def test_files_are_cut_anywhere_and_no_line_is_lost(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.data.sources.files.files.TASK_BYTES", (20_000, 20_000))
    lines = [f"{number},{'x' * (number % 97)}" for number in range(3_000)]
    lines[2_000] = "bad"
    path = write(tmp_path, "a.csv", "a,b\n" + "\n".join(lines))
    tables = read_tables(spark, source(t={"format": "csv", "path": path, "schema": "a int, b string", "options": {"header": True}}))
    assert [number for number, _ in sorted(view_rows(spark))] == [number for number in range(3_000) if number != 2_000]
    ((_, record, where),) = malformed_records(tables)
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
    ((name, born, size),) = view_rows(spark)
    assert (name, str(born), size) == ("Björk; singer\non stage", "1965-11-21", None)


def test_a_header_must_name_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "b,a\n1,2\n")
    table = {"format": "csv", "path": path, "schema": "a int, b int", "options": {"header": True}}
    with pytest.raises(SourceError, match=r"^source.tables.t: \S+a.csv has columns b, a; its schema has a, b"):
        read_tables(spark, source(t=table))
    read_tables(spark, source(t=table | {"options": {"header": True, "enforceSchema": True}}))
    assert view_rows(spark) == [(1, 2)]


def test_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        '{"a": 1, "b": {"c": [1.5]}}', '{"a": null}', '{"a": "1"}', '{"a": 1} {"a": 2}', '{"a": 1}}', "[]", "null", '{"a": 01}',
        '{"b": {"c": [NaN]}}', "{'a': 1}", '{"z": [1,]}', '{"a": 1',
    ]  # fmt: skip
    path = write(tmp_path, "a.json", "\n".join(lines))
    tables = read_tables(spark, source(t={"format": "json", "path": path, "schema": "a int, b struct<c: array<double>>"}))
    assert [(row.a, row.b and row.b.c) for row in spark.table("t").collect()] == [(1, [1.5]), (None, None)]
    assert [record for _, record, _ in malformed_records(tables)] == sorted(lines[2:])


def test_keys_of_json(spark: SparkSession, tmp_path: Path) -> None:
    twice = '{"plan": "c", "PLAN": "d"}'
    lines = ['{"Plan": "a", "U": {"N": 1}}', '{"plan": "b", "plna": 2}', twice, '{"x": 1}', '{"x": 2, "u": null}', "[]"]
    table = {"format": "json", "path": write(tmp_path, "a.json", "\n".join(lines)), "schema": "plan string, u struct<n: int>"}
    tables = read_tables(spark, source(t=table))
    assert sorted((row.plan or "", row.u and row.u.n) for row in spark.table("t").collect()) == [
        ("", None),
        ("", None),
        ("a", 1),
        ("b", None),
    ]
    assert malformed_records(tables) == [
        ("t: key plan occurs twice in an object", twice, f"{table['path']}:3"),
        ("t: not a JSON object of these columns' types", "[]", f"{table['path']}:6"),
    ]
    assert tables.notes == (
        "source.tables.t: 1 row has no key of its schema, so that all columns there are NULL",
        "source.tables.t: keys that its schema does not name are left out: x 2 times, plna 1 time (did you mean plan?)",
    )
    document = {**table, "path": write(tmp_path, "b.json", f"[{lines[0]},\n{lines[1]}]"), "options": {"multiLine": True}}
    assert read_tables(spark, source(t=document)).handed_on == {"t": 2}
    assert sorted(row.plan for row in spark.table("t").collect()) == ["a", "b"]


def test_text_has_one_column_of_text(spark: SparkSession, tmp_path: Path) -> None:
    table = {"format": "text", "path": write(tmp_path, "a.txt", "1\n"), "schema": "value int"}
    with pytest.raises(ConfigError, match=r"^source.tables.t.schema: text has one column, a string, .* declare it as `value string`"):
        read_tables(spark, source(t=table))
    read_tables(spark, source(t={**table, "schema": "value string"}))
    assert spark.sql("SELECT CAST(value AS int) AS v FROM t").collect() == [(1,)]


def test_a_json_document(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '[{"a": 0.1000000000000000055},\n {"a": "x"}]')
    tables = read_tables(spark, source(t={"format": "json", "path": path, "schema": "a decimal(30, 20)", "options": {"multiLine": True}}))
    assert [str(row.a) for row in spark.table("t").collect()] == ["0.10000000000000000550"]
    assert malformed_records(tables) == [("t: not a JSON object of these columns' types", '{"a": "x"}', f"{path}:2")]


def test_text_and_whole_files(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "one\n\nthree")
    read_tables(spark, source(t={"format": "text", "path": path}, u={"format": "text", "path": path, "options": {"wholetext": True}}))
    assert view_rows(spark) == [("",), ("one",), ("three",)]
    assert view_rows(spark, "u") == [("one\n\nthree",)]
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
        assert view_rows(spark) == [(1,), (2,), (3,), (4,)]
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
    filled = {"format": "csv", "path": write(tmp_path, "b.csv", "a\n1\n"), "schema": "a int", "options": {"header": True}}
    assert read_tables(spark, source(people=filled)).parsed == {"people": 1}, "a path that holds rows is the remedy"


def test_a_schema_that_is_none_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = {"format": "csv", "path": write(tmp_path, "a.csv", "1\n")}
    with pytest.raises(ConfigError, match=r"source.tables.t.schema: the column name _record is taken; choose another"):
        read_tables(spark, source(t={**table, "schema": "_record int"}))
    assert read_tables(spark, source(t={**table, "schema": "record int"})).parsed == {"t": 1}
    with pytest.raises(ConfigError, match=r"source.tables.t.schema: .*'2'"):
        read_tables(spark, source(t={"format": "csv", "path": write(tmp_path, "a.csv", "1\n"), "schema": "a int 2"}))


@pytest.mark.full
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
    assert tables.handed_on == tables.parsed
    row = spark.sql("SELECT count(workclass), sum(age), min(income), max(income) FROM adult").first()
    assert row is not None and tuple(row) == (46_043, 1_887_430, "<=50K", ">50K.")
    row = spark.sql("SELECT sum(label), min(length(image)), max(length(image)) FROM mnist").first()
    assert row is not None and tuple(row) == (267_236, 784, 784)

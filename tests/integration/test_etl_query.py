"""Limits of the query and the expectations, and the messages about them before anything is read."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from raw import raw

from pipelines.config import Config, load, parse
from pipelines.data.sources.base import raw_tables
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.plan_checks import _TAKES, plan_warnings, text_cast_notes
from pipelines.etl.query import analyse, run_query
from pipelines.runtime.compat.spark import query_execution

UNREAD = {"format": "csv", "path": "/nowhere.csv", "schema": "i int, x double, s string, day date, `select` array<int>"}


def config(query: str, expect: dict[str, str] | None = None, tables: dict[str, Any] | None = None, **dataset: Any) -> Config:
    base = {"path": "data", "features": {"i": "standardize"}, "target": {"x": "identity"}}
    source = {"tables": tables or {"t": UNREAD, "u": UNREAD}, "query": query, "expect": expect or {}}
    return parse({"name": "t", "source": source, "dataset": base | dataset, "task": {"kind": "tabular"}}, "t.yaml")


@pytest.fixture(autouse=True)
def tables(spark: SparkSession) -> None:
    spark.sql("SELECT * FROM VALUES (1, 0.5D, 'a'), (2, 1.5D, 'b') AS t(i, x, s)").createOrReplaceTempView("t")


def analysis_warnings(spark: SparkSession, config: Config) -> tuple[str, ...]:
    return analyse(spark, config, raw_tables(config.source))


def run_rows(spark: SparkSession, query: str) -> DataFrame:
    return run_query(spark, config(query), is_deterministic=True)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT s, 1 AS i, sum(x) AS x FROM t GROUP BY s", "sum of floating point numbers depends on the order of rows"),
        ("SELECT s, i, avg(x * 2) OVER (PARTITION BY s) AS x FROM t", "avg of floating point numbers"),
        ("SELECT 1 AS i, stddev(i) AS x FROM t", "stddev of floating point numbers"),
        ("SELECT 1 AS i, first(x) AS x FROM t", "first() depends on the order of rows"),
        ("SELECT 1 AS i, any_value(x) AS x FROM t", "any_value() depends"),
        ("SELECT i, max_by(x, s) AS x FROM t GROUP BY i", "max_by() depends"),
        ("SELECT 1 AS i, collect_list(x)[0] AS x FROM t", "collect_list() depends"),
        ("SELECT * FROM t LIMIT 1", "LIMIT or OFFSET without ORDER BY"),
        ("SELECT * FROM t TABLESAMPLE (5 ROWS)", "LIMIT or OFFSET without ORDER BY"),
        ("SELECT *, now() AS r FROM t", "now() is another value in every run"),
        ("SELECT *, current_user() AS r FROM t", "current_user() depends on who runs it"),
        ("WITH means AS (SELECT avg(x) AS m FROM t) SELECT t.* FROM t JOIN means ON x < m", "avg of floating point numbers"),
        ("SELECT *, (SELECT sum(x) FROM t) AS total FROM t", "sum of floating point numbers"),
        ("SELECT * FROM t WHERE EXISTS (SELECT i FROM t LIMIT 1)", "LIMIT or OFFSET without ORDER BY"),
    ],
)
def test_p6_what_may_come_out_otherwise_is_warned_of_by_name(spark: SparkSession, query: str, words: str) -> None:
    (warning,) = analysis_warnings(spark, config(query))
    assert warning.startswith(f"source.query: {words}")


def test_p6_so_is_an_expectation_and_only_for_itself(spark: SparkSession) -> None:
    expect = {"plain": "i > 0", "past": "day < current_date()", "small": "x < (SELECT avg(x) FROM u)"}
    warnings = analysis_warnings(spark, config("SELECT * FROM t LIMIT 7", expect))
    assert [warning.split(" ")[:2] for warning in warnings] == [
        ["source.query:", "LIMIT"],
        ["source.expect.past:", "current_date()"],
        ["source.expect.small:", "avg"],
    ]


CHANCES = {
    "rand() < 0.5": "rand()",
    "rand(7) < 0.5": "rand()",
    "randn() < 0": "randn()",
    "hash(uuid()) % 2 = 0": "uuid()",
    "monotonically_increasing_id() < 100": "monotonically_increasing_id()",
    "spark_partition_id() = 0": "spark_partition_id()",
    "shuffle(array(1, 2))[0] = 1": "shuffle()",
    "randstr(3) > 'b'": "randstr()",
    "uniform(1, 9) > 3": "uniform()",
    "exists(array(x), v -> v > rand())": "rand()",
    "aes_encrypt('a', '0000111122223333') > X'77'": "aes_encrypt()",
    "reflect('java.util.UUID', 'randomUUID') > '7'": "reflect()",
    "i IN (SELECT i FROM u WHERE rand() < 0.5)": "rand()",
    "EXISTS (SELECT 1 FROM u TABLESAMPLE (50 PERCENT))": "TABLESAMPLE",
}


@pytest.mark.parametrize("condition", CHANCES)
def test_p2_chance_decides_nothing_about_a_row(spark: SparkSession, condition: str) -> None:
    words = rf"{re.escape(CHANCES[condition])} may give another result each time it is computed.*take a function of the row's values"
    with pytest.raises(ConfigError, match=f"^source.expect.by chance: {words}"):
        analysis_warnings(spark, config("SELECT * FROM t", {"fine": "i > 0", "by chance": condition}))
    for query in (
        f"SELECT * FROM t WHERE {condition}",
        f"WITH drawn AS (SELECT *, {condition} AS luck FROM t) SELECT a.* FROM drawn a JOIN u b ON a.i = b.i AND luck",
    ):
        with pytest.raises(ConfigError, match=f"^source.query: {words}"):
            analysis_warnings(spark, config(query))


def test_a_hash_of_the_key_decides_in_the_place_of_chance(spark: SparkSession) -> None:
    tenth = "pmod(xxhash64(id), 100) < 10"
    assert list(analysis_warnings(spark, config(f"SELECT * FROM t WHERE {tenth.replace('id', 'i')}"))) == []
    assert 900 < spark.range(10_000).where(tenth).count() < 1_100


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT *, rand() AS r FROM t", "rand()"),
        ("SELECT *, first(rand()) OVER (ORDER BY i) AS r FROM t", "rand()"),
        ("SELECT *, row_number() OVER (ORDER BY rand()) AS r FROM t", "rand()"),
        ("SELECT * FROM t ORDER BY uuid() LIMIT 3", "uuid()"),
        ("SELECT *, explode(shuffle(`select`)) AS e FROM t", "shuffle()"),
        ("SELECT int(rand() * 3) AS i, 1 AS x, count(*) FROM t GROUP BY 1", "rand()"),
        ("SELECT * FROM t TABLESAMPLE (50 PERCENT) REPEATABLE (7)", "TABLESAMPLE"),
        ("SELECT * FROM t TABLESAMPLE (BUCKET 1 OUT OF 3)", "TABLESAMPLE"),
    ],
)
def test_p2_nor_about_what_the_query_gives(spark: SparkSession, query: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^source.query: {re.escape(name)} may give another result"):
        analysis_warnings(spark, config(query))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT *, i + 1 AS j FROM t WHERE x > 0",
        "SELECT s, sum(i) AS i, avg(i) AS m, count(*) AS n, max(x) AS x, count_if(x > 0) AS c FROM t GROUP BY s",
        "SELECT sum(CAST(x AS DECIMAL(20, 6))) AS x FROM t",
        "SELECT * FROM t ORDER BY i LIMIT 1",
        "SELECT i, x FROM (SELECT * FROM t ORDER BY i LIMIT 1)",
        "SELECT a.i, b.x FROM t AS a JOIN t AS b USING (s)",
        "SELECT *, TIMESTAMP '2026-11-26 00:00:00' AS r FROM t",
        "SELECT *, 'the user' AS r FROM t",
        "SELECT *, collect_list(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS history FROM t",
        "SELECT *, row_number() OVER (ORDER BY i) AS number FROM t",
        "SELECT s, array_sort(collect_list(struct(i, x))).x AS i, sort_array(collect_list(x), false) AS x FROM t GROUP BY s",
    ],
)
def test_what_cannot_is_not(spark: SparkSession, query: str) -> None:
    assert list(plan_warnings(spark.sql(query)._jdf.queryExecution().analyzed())) == []


def test_p6_rows_that_may_change_are_the_same_for_fitting_and_for_writing(spark: SparkSession) -> None:
    rows = run_query(spark, config("SELECT id AS i, now() AS x FROM range(100)"), is_deterministic=False)
    assert rows.orderBy("i").collect() == rows.repartition(3).orderBy("i").collect()
    rows.unpersist()


def test_a_query_that_only_selects_is_not_held_in_memory(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(5).write.parquet(str(tmp_path / "raw"))
    spark.read.parquet(str(tmp_path / "raw")).createOrReplaceTempView("raw")
    assert not run_rows(spark, "SELECT id + 1 AS i, 0 AS x FROM raw WHERE id > 0").is_cached
    assert run_rows(spark, "SELECT i, count(*) AS x FROM t GROUP BY i").is_cached


@pytest.mark.parametrize(
    ("query", "dataset", "words"),
    [
        ("SELECT i, x, x AS I FROM t", {}, "source.query gives i more than once; name its columns apart with AS"),
        ("SELECT i, x, s AS __part FROM t", {}, "source.query gives __part, a name that ETL needs"),
        ("SELECT i, x, s AS `a``b` FROM t", {}, "source.query gives a`b; Spark hands no name with a dot or a backtick to Python"),
        ("SELECT i, x AS `x.y`, s FROM t", {}, "source.query gives x.y; Spark hands no name with a dot or a backtick to Python"),
        ("SELECT i, x FROM t", {"key": ["id", "x"]}, "dataset.key: the query gives no column id; it gives i, x"),
        ("SELECT i, x FROM t", {"split": {"by": "fold"}}, "dataset.split.by: the query gives no column fold; it gives i, x"),
        (
            "SELECT i, x FROM t",
            {"split": {"time": "day", "validation": "1", "test": "2"}},
            "dataset.split.time: the query gives no column day",
        ),
        ("SELECT i, x FROM t", {"split": {"group": "user"}}, "dataset.split.group: the query gives no column user"),
    ],
)
def test_columns_that_cannot_be_meant(spark: SparkSession, query: str, dataset: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        analysis_warnings(spark, config(query, **dataset))
    assert str(raised.value).startswith(words)


def test_columns_with_other_names_can(spark: SparkSession) -> None:
    assert analysis_warnings(spark, config("SELECT i, x, x AS second, s AS part FROM t")) == ()


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        ("INSERT OVERWRITE DIRECTORY '{0}/out' USING csv SELECT * FROM t", "INSERT INTO DIR"),
        ("CREATE TABLE {1} AS SELECT * FROM t", "CREATE TABLE AS SELECT"),
        ("CREATE TEMPORARY VIEW {1} AS SELECT 1", "CREATE VIEW"),
        ("WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a", "INSERT INTO STATEMENT"),
        ("FROM t INSERT INTO a SELECT * INSERT INTO b SELECT *", "INSERT INTO STATEMENT"),
        ("SET spark.sql.ansi.enabled=false", "SET"),
        ("DROP TABLE t", "DROP TABLE"),
        ("CACHE TABLE t", "CACHE TABLE"),
        ("SHOW TABLES", "SHOW TABLES"),
        ("EXECUTE IMMEDIATE 'SET spark.sql.ansi.enabled=false'", "EXECUTE IMMEDIATE"),
        ("BEGIN SET spark.sql.ansi.enabled=false; SELECT 1; END", "COMPOUND BODY"),
        ("SELECT TRANSFORM(i) USING 'touch {0}/out' FROM t", "SCRIPT TRANSFORMATION"),
    ],
)
def test_only_a_query_is_one_and_nothing_else_is_run(spark: SparkSession, tmp_path: Path, query: str, statement: str) -> None:
    with pytest.raises(ConfigError) as raised:
        analysis_warnings(spark, config(query.format(tmp_path, "made_by_a_query")))
    assert (
        str(raised.value) == f"source.query: {statement} is not part of a query; only what reads the tables may stand here, such as SELECT"
    )
    assert not (tmp_path / "out").exists() and not spark.catalog.tableExists("made_by_a_query")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true" and spark.catalog.tableExists("t")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "VALUES (1, 2) AS t(i, x)",
        "WITH RECURSIVE r AS (SELECT 1 AS i, 2 AS x UNION ALL SELECT i + 1, x FROM r WHERE i < 3), q AS (TABLE r) SELECT * FROM q",
        "FROM T |> WHERE i > 0 |> SELECT i, x",
        "SELECT i, x FROM t UNION SELECT i, x FROM u INTERSECT SELECT 1, 2 EXCEPT SELECT 3, 4",
        "SELECT i, max(x) AS x FROM t GROUP BY ALL HAVING count(*) > 1 ORDER BY i LIMIT 3 OFFSET 1",
        "SELECT /*+ BROADCAST(u) */ t.i, e AS x FROM t JOIN u USING (i) LATERAL VIEW explode(t.`select`) AS e",
        "SELECT t.i, q.x FROM t, LATERAL (SELECT x FROM u WHERE u.i = t.i) AS q DISTRIBUTE BY i",
        "SELECT DISTINCT i, v AS x FROM (SELECT i, x FROM t) UNPIVOT (v FOR n IN (x))",
        "SELECT i, a AS x FROM (SELECT i, s FROM t) PIVOT (count(*) FOR s IN ('a'))",
        "SELECT i, sum(i) OVER w AS x FROM t WINDOW w AS (PARTITION BY s ORDER BY i)",
        "SELECT id AS i, id AS x FROM range(9) WHERE id IN (SELECT i FROM t) AND EXISTS (SELECT 1 FROM u)",
    ],
)
def test_every_query_is_one(spark: SparkSession, query: str) -> None:
    analysis_warnings(spark, config(query))


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT * FROM tt", "source.tables has no tt; did you mean t? A query reads only the tables named there"),
        ("SELECT * FROM text.`/etc/passwd`", "source.tables has no text./etc/passwd; choose one of t, u"),
        ("SELECT * FROM t WHERE i IN (SELECT 1 FROM default.t)", "source.tables has no default.t"),
        ("WITH q AS (SELECT * FROM csv.`/etc/passwd`) SELECT * FROM q", "source.tables has no csv./etc/passwd"),
    ],
)
def test_a_query_reads_the_tables_that_are_named_and_checksummed(spark: SparkSession, query: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        analysis_warnings(spark, config(query))
    assert str(raised.value).startswith(f"source.query: {words}")


@pytest.mark.parametrize(
    ("expect", "error", "words"),
    [
        ({"adult": "ages > 17"}, SourceError, "source.expect.adult: A column, variable, or function parameter with name `ages` cannot"),
        ({"fine": "i > 0", "cut": "i >"}, SourceError, "source.expect.cut: Syntax error"),
        ({"number": "i + 1"}, SourceError, "source.expect.number: "),
        ({"many": "explode(`select`) > 0"}, SourceError, "source.expect.many: "),
        ({"window": "row_number() OVER (ORDER BY i) > 2"}, SourceError, "source.expect.window: "),
        ({"sum": "sum(i) > 2"}, SourceError, "source.expect.sum: "),
        ({"read": "EXISTS (SELECT 1 FROM text.`/etc/passwd`)"}, ConfigError, "source.expect.read: source.tables has no text./etc/passwd"),
        ({"two": "i > 0; DROP TABLE t"}, SourceError, "source.expect.two: Syntax error"),
        ({"mine": "s = '${env:USER}'"}, ConfigError, "source.expect.mine: ${env:USER} would be a value of the machine"),
    ],
)
def test_an_expectation_that_is_none_is_named(spark: SparkSession, expect: dict[str, str], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as raised:
        analysis_warnings(spark, config("SELECT * FROM t", expect))
    assert str(raised.value).startswith(words) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT i, y AS x FROM t", "source.query: A column, variable, or function parameter with name `y` cannot"),
        ("SELEC i, x FROM t", "source.query: Syntax error at or near 'SELEC'"),
        ("SELECT i, frobnicate(x) AS x FROM t", "source.query: "),
        ("SELECT i, x, s.a FROM t", "source.query: "),
    ],
)
def test_what_is_wrong_with_a_query_is_said_before_anything_is_read(spark: SparkSession, query: str, words: str) -> None:
    with pytest.raises(SourceError) as raised:
        analysis_warnings(spark, config(query))
    assert str(raised.value).startswith(words) and "\n" not in str(raised.value)


def test_casts_of_text_to_numbers_are_named_with_what_they_take(spark: SparkSession) -> None:
    casts = (
        "try_cast(s AS double) AS a, CAST(i AS double) AS b, CAST('1' AS float) AS c, trim(s) + 0.5D AS e, s :: int AS f, "
        "try_cast(split(s, ',') AS array<decimal(9,2)>) AS g, transform(split(s, ','), v -> bigint(v)) AS h"
    )
    (note,) = text_cast_notes(query_execution(spark.sql(f"SELECT {casts}, CAST(i AS string) AS d FROM t")).analyzed())
    named, _, rule = note.partition(": a cast of text takes more than digits; ")
    assert named == (
        "source.query: split(t.s, ',', -1) AS array<decimal(9,2)>, t.s AS double, t.s AS int, trim(t.s) AS double, v AS bigint"
    )
    assert rule == "to refuse the rest, declare the column as a number in the table's schema"
    assert "float and double take 12D, 0x1p4, NaN and 1e400, and decimal digits of any script; all of them, as whole numbers do" in _TAKES
    assert text_cast_notes(query_execution(spark.sql("SELECT i, x / 2 AS x, CAST(i AS string) AS s FROM t")).analyzed()) == ()
    texts = "12D", "0x1p4", "NaN", "1e400", "٣", " 1\t", "1.5", "1,234", "1_0", "٣.٣", "1L"
    accepted_texts = {
        kind: [text for text in texts if spark.sql(f"SELECT try_cast('{text}' AS {kind}) IS NOT NULL AS v").first().v]  # type: ignore[union-attr]
        for kind in ("double", "decimal(9,2)", "bigint", "int")
    }
    assert accepted_texts == {
        "double": ["12D", "0x1p4", "NaN", "1e400", " 1\t", "1.5"],
        "decimal(9,2)": ["٣", " 1\t", "1.5", "٣.٣"],
        "bigint": [" 1\t"],
        "int": [" 1\t"],
    }  # what _TAKES says


def test_p6_a_query_takes_no_value_from_the_machine(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"^source.query: \$\{env:HOME\} would be a value of the machine that runs it"):
        analysis_warnings(spark, config("SELECT i, x, '${env:HOME}' AS home FROM t"))
    assert spark.sql("SELECT '${spark.app.name} ${x}' AS text").first() == ("${spark.app.name} ${x}",)


def test_so_is_what_no_table_can_be(spark: SparkSession, tmp_path: Path) -> None:
    for schema in ("i int x double", "i int, x array"):
        with pytest.raises(ConfigError, match=r"^source.tables.t.schema: "):
            analysis_warnings(spark, config("SELECT * FROM t", tables={"t": UNREAD | {"schema": schema}}))
    split = {"time": "day", "validation": "soon", "test": "2017-06-01"}
    with pytest.raises(ConfigError, match=r"^dataset.split: column day is date"):
        analysis_warnings(spark, config("SELECT * FROM t", split=split))
    with pytest.raises(ConfigError, match=r"^dataset.features.i: standardize cannot encode column i, which is string"):
        analysis_warnings(spark, config("SELECT s AS i, x FROM t"))


def test_tables_of_every_format_have_their_columns_before_they_are_read(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).selectExpr("id AS i", "id / 2 AS x", "id % 2 AS part").write.partitionBy("part").parquet(f"{tmp_path}/parquet")
    (tmp_path / "images/class=cat").mkdir(parents=True)
    (tmp_path / "images/class=cat/1.jpg").write_bytes(b"1")
    (tmp_path / "files").mkdir()
    (tmp_path / "files/1.jpg").write_bytes(b"1")
    tables = {
        "p": {"format": "parquet", "path": f"{tmp_path}/parquet"},
        "q": {"format": "parquet", "path": f"{tmp_path}/parquet", "schema": "x double"},
        "images": {"format": "binaryFile", "path": f"{tmp_path}/images"},
        "files": {"format": "binaryFile", "path": f"{tmp_path}/files"},
        "one": {"format": "idx", "path": f"{tmp_path}/files"},
        "archives": {"format": "tar", "path": "/nowhere.tar"},
        "lines": {"format": "text", "path": "/nowhere.txt"},
        "records": {"format": "json", "path": "/nowhere.json", "schema": "a struct<b: int>"},
    }
    query = """SELECT p.i + p.part AS i, q.x, images.class, files.length, one.value, archives.content, lines.value AS line, records.a.b
        FROM p, q, images, files, one, archives, lines, records"""
    assert analysis_warnings(spark, config(query, tables=tables)) == ()


def test_p6_where_a_file_lies_and_when_it_was_written_is_no_part_of_a_dataset(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"1")
    tables = {"files": {"format": "binaryFile", "path": str(tmp_path)}}
    query = "SELECT length AS i, 0.5D AS x, {} FROM files"
    (warning,) = analysis_warnings(spark, config(query.format("path"), tables=tables))
    assert "source.query: path is another one where the files are copied to" in warning
    (warning,) = analysis_warnings(spark, config(query.format("modificationTime"), tables=tables))
    assert "modificationTime is another one where the files are copied to" in warning and warning.endswith("; leave it out")
    assert analysis_warnings(spark, config(query.format("regexp_extract(path, '[^/]+$', 0) AS s"), tables=tables)) == ()
    listed = {**tables, "listed": {"format": "csv", "path": "/nowhere.csv", "schema": "path string"}}
    assert analysis_warnings(spark, config("SELECT length AS i, 0.5D AS x, listed.path FROM files, listed", tables=listed)) == ()
    (warning, _) = analysis_warnings(spark, config("SELECT *, length AS i, 0.5D AS x FROM files", tables=tables))
    assert "path" in warning or "modificationTime" in warning


@pytest.mark.parametrize("conf", sorted(Path(__file__).parents[2].glob("conf/*.yaml")), ids=lambda path: path.stem)
def test_the_queries_of_the_repository_are_queries_of_no_chance(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, conf: Path) -> None:
    monkeypatch.setenv("LOCKSTEP_RAW", str(raw("adult").parent))
    try:
        warnings = analysis_warnings(spark, load(conf))
    except SourceError as error:
        if "no such file" not in str(error):
            raise
        pytest.skip(str(error))
    assert warnings == ()

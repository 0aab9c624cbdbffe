"""Where rows go: by their content alone."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stores import new_store

from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import ByColumn, ByFraction, ByTime, Dataset, Split
from pipelines.data.versions.data_profile import Files, Survey
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.refusals import REASON, accepted_rows, refuse
from pipelines.etl.run import run
from pipelines.etl.splits import split_assignment
from pipelines.etl.splits.shares import compare_shares
from pipelines.etl.splits.split_assignment import PART, PLACE, ROW, SPLIT, salt_number
from pipelines.etl.summary import version_summary
from pipelines.report.data_profile import profile_files


def hashes(rows: DataFrame, key: tuple[str, ...] = ()) -> list[int]:
    return [row[0] for row in split_assignment.add_identity(rows, key).select(ROW).collect()]


def reasons(rows: DataFrame) -> dict[str, int]:
    """Refused rows by reason."""
    return {row[REASON]: row["count"] for row in rows.where(F.col(REASON).isNotNull()).groupBy(REASON).count().collect()}


def split_numbers(rows: DataFrame, split: Split, key: tuple[str, ...] = ()) -> dict[object, int]:
    """The number of its split by the value of each row's first column."""
    return {row[0]: row[SPLIT] for row in split_assignment.assign_split(split_assignment.add_identity(rows, key), split).collect()}


# ROW, the hash of all columns, SPLIT, PART, PLACE
KNOWN = [
    (-6347125605156819974, -2199170313339613862, 1, 5, 8195274949304114264),
    (-1639627080709930271, -7924595155043672484, 1, 5, 6414755207673520185),
    (528851431208050748, -2681786789328844949, 2, 8, 1785205412247341896),
    (-5913570802966625154, -29358719863895719, 2, 8, -8752182977789116662),
    (-1817699667771883735, -6232579003381727623, 2, 8, 2323852384951062867),
    (-6969045163297941522, 1827655119779046596, 1, 7, -2630395628726295252),
    (3376607499798353174, -9199731548514168687, 0, 4, -8487738252772014540),
]


def test_p6_where_rows_go_is_pinned(spark: SparkSession) -> None:
    """Known answers: if they change, raise split_assignment.VERSION, for versions made before are then made otherwise."""
    values = "(1, 0.5D, 'a'), (2, -1.5D, NULL), (3, NULL, 'ü'), (4, 0D, 'd'), (5, 9D, 'e'), (6, 1D, 'f'), (7, 2D, 'g')"
    rows = split_assignment.add_identity(spark.sql(f"SELECT * FROM VALUES {values} AS t(i, x, s)"), ())
    dealt = split_assignment.assign_split(rows, ByFraction(train=0.6, validation=0.2, test=0.2))
    placed = split_assignment.assign_part(dealt, {0: range(5), 1: range(5, 8), 2: range(8, 9)}).orderBy("i")
    (content,) = split_assignment.content_order(placed)
    assert [tuple(row) for row in placed.select(ROW, content, SPLIT, PART, PLACE).collect()] == KNOWN


def test_p6_the_number_of_a_salt_has_its_hash(spark: SparkSession) -> None:
    salts = ["row", "a", "", "fold 7 12", "longer than the eight bytes that a number has, and than thirty-two"]
    row = spark.range(1).select(*[F.xxhash64(F.lit(value)) for salt in salts for value in (salt, salt_number(salt))]).first()
    assert row is not None and row[::2] == row[1::2]


def test_null_and_its_neighbour_do_not_change_places(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (NULL, 5), (5, NULL), (NULL, NULL) AS t(a, b)")
    assert len(set(hashes(rows))) == 3


def test_every_type_has_a_hash_and_maps_one_for_any_order_of_entries(spark: SparkSession) -> None:
    sql = """SELECT map('a', map(1, {0}), 'b', NULL) m, named_struct('inner', array(map('x', 1))) s, parse_json('{{"k": [1]}}') v,
        array(1, NULL) a, X'00FF' b, DATE'2020-01-01' d, TIMESTAMP'2020-01-01 00:00:00' t, 1.50BD n, NULL nothing"""
    turned = "SELECT map_from_entries(reverse(map_entries(m))) m, s, v, a, b, d, t, n, nothing FROM ({0})"
    rows, reordered_rows, other_rows = (spark.sql(text) for text in (sql.format(7), turned.format(sql.format(7)), sql.format(8)))
    assert hashes(rows) == hashes(reordered_rows) != hashes(other_rows)


def test_shares_are_kept_and_do_not_depend_on_the_other_rows(spark: SparkSession) -> None:
    rows = spark.range(20_000).selectExpr("id", "id % 7 AS x")
    split = ByFraction(train=0.7, validation=0.2, test=0.1)
    numbers = split_numbers(rows, split)
    counts = [list(numbers.values()).count(number) for number in range(3)]
    assert all(
        abs(count - share * 20_000) < 4 * (20_000 * share * (1 - share)) ** 0.5
        for count, share in zip(counts, (0.7, 0.2, 0.1), strict=True)
    )
    few = split_numbers(rows.where("id % 100 = 3").repartition(7), split)
    assert few == {key: numbers[key] for key in few} and len(few) == 200


def test_nothing_goes_to_a_split_without_a_share(spark: SparkSession) -> None:
    assert set(split_numbers(spark.range(2_000).toDF("id"), ByFraction(train=0.9, validation=0.1, test=0.0)).values()) == {0, 1}


def test_a_group_stays_together(spark: SparkSession) -> None:
    rows = spark.range(3_000).selectExpr("id", "nullif(id % 100, 0) AS g")
    numbers = split_numbers(rows, ByFraction(train=0.5, validation=0.25, test=0.25, group="g"))
    by_group = {group: {numbers[key] for key in range(3_000) if key % 100 == group} for group in range(100)}
    assert all(len(group_numbers) == 1 for group_numbers in by_group.values())
    assert set.union(*by_group.values()) == {0, 1, 2}


def test_a_published_split_is_kept_and_other_values_are_refused(spark: SparkSession) -> None:
    rows = spark.range(4_000).selectExpr("id", "element_at(array('train', 'test', 'Train', NULL), CAST(id % 4 + 1 AS INT)) AS s")
    dealt = split_assignment.assign_split(split_assignment.add_identity(rows, ()), ByColumn(by="s", validation=0.25))
    counts = {(row.s, row[SPLIT]): row["count"] for row in accepted_rows(dealt).groupBy("s", SPLIT).count().collect()}
    assert set(counts) == {("train", 0), ("train", 1), ("test", 2)}
    assert counts["test", 2] == 1_000 and 180 < counts["train", 1] < 320 and counts["train", 0] + counts["train", 1] == 1_000
    assert reasons(dealt) == {"split: s is not train, validation or test": 2_000}


def test_time_decides_and_a_row_without_it_is_refused(spark: SparkSession) -> None:
    days = ["DATE'2016-12-31'", "DATE'2017-01-01'", "DATE'2017-05-31'", "DATE'2017-06-01'", "NULL"]
    rows = spark.sql(f"SELECT * FROM VALUES {', '.join(f'({number}, {day})' for number, day in enumerate(days, 1))} AS t(i, d)")
    dealt = split_assignment.assign_split(
        split_assignment.add_identity(rows, ()), ByTime(time="d", validation="2017-01-01", test="2017-06-01")
    )
    assert {row.i: row[SPLIT] for row in accepted_rows(dealt).collect()} == {1: 0, 2: 1, 3: 1, 4: 2}
    assert reasons(dealt) == {"split: d is NULL": 1}


@pytest.mark.parametrize(("validation", "test"), [("soon", "2017-06-01"), ("2018-01-01", "2017-06-01")])
def test_limits_that_are_no_times_in_order(spark: SparkSession, validation: str, test: str) -> None:
    rows = spark.sql("SELECT DATE'2017-01-01' AS d")
    with pytest.raises(ConfigError, match=f"column d is date; validation \\({validation}\\) and test"):
        split_assignment.assign_split(split_assignment.add_identity(rows, ()), ByTime(time="d", validation=validation, test=test))


def test_one_row_of_each_key_is_kept_the_same_for_any_order(spark: SparkSession) -> None:
    rows = spark.range(300).selectExpr("id % 100 AS k", "nullif(id % 100, 5) AS j", "id AS v")
    accepted = []
    for arrangement in (rows.orderBy("v"), rows.orderBy(F.desc("v")).repartition(3)):
        judged = split_assignment.find_and_refuse_repeats(split_assignment.add_identity(arrangement, ("k", "j")), ("k", "j"))
        assert reasons(judged) == {"repeated key: k, j": 200}
        accepted.append(sorted(row.v for row in accepted_rows(judged).collect()))
    assert accepted[0] == accepted[1] and sorted(value % 100 for value in accepted[0]) == list(range(100))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("array(1, NULL, 3)", "array(NULL, 1, 3)"),
        ("map('a', named_struct('b', 1, 'c', NULL))", "map('a', named_struct('b', NULL, 'c', 1))"),
    ],
)
def test_one_row_of_each_key_is_kept_where_only_nulls_inside_values_differ(spark: SparkSession, first: str, second: str) -> None:
    accepted = []
    for arrangement in ((first, second), (second, first)):
        values = ", ".join(f"(CAST(7 AS INT), {value})" for value in arrangement)
        rows = split_assignment.add_identity(spark.sql(f"SELECT * FROM VALUES {values} AS t(k, v)").coalesce(1), ("k",))
        assert rows.select(split_assignment.content_order(rows)[0]).distinct().count() == 1, "the hash skips what differs"
        accepted.append([str(row.v) for row in accepted_rows(split_assignment.find_and_refuse_repeats(rows, ("k",))).collect()])
    assert accepted[0] == accepted[1] and len(accepted[0]) == 1


def test_a_row_that_was_refused_before_keeps_its_reason_and_repeats_no_key(spark: SparkSession) -> None:
    rows = split_assignment.add_identity(spark.range(6).selectExpr("id % 3 AS k", "id AS v"), ("k",))
    judged = split_assignment.find_and_refuse_repeats(refuse(rows, F.when(F.col("v") < 2, F.lit("small"))), ("k",))
    assert reasons(judged) == {"small": 2, "repeated key: k": 1}


def test_keys_that_do_not_repeat_cost_no_row(spark: SparkSession) -> None:
    rows = split_assignment.add_identity(spark.range(100).selectExpr("id AS k", "1 AS x"), ("k",))
    assert split_assignment.find_and_refuse_repeats(rows, ("k",)) is rows
    assert hashes(rows, ("k",)) == hashes(rows.withColumn("x", F.lit(2)), ("k",))


def test_a_split_without_rows_is_an_error_with_the_counts() -> None:
    with pytest.raises(SourceError, match=r"no row is left for validation \(train 9, validation 0, test 3\); give more rows, or change"):
        split_assignment.check_splits({0: 9, 1: 0, 2: 3}, ByFraction())
    split_assignment.check_splits({0: 9, 1: 0, 2: 0}, ByColumn(by="s"))


def shares_message(rows: DataFrame, split: dict[str, object], key: tuple[str, ...] = (), bound: float = 0.3) -> str:
    """The sentence about the shares of these rows; empty if they came as requested."""
    tensors = {"features": {"x": "identity"}, "target": {"y": "identity"}}
    dataset = Dataset.model_validate({"path": "data", "key": key, "split": split, "max_share_error": bound, **tensors})
    dealt = split_assignment.assign_split(split_assignment.add_identity(rows, key), dataset.split)
    counts = {row[SPLIT]: row["count"] for row in accepted_rows(dealt).groupBy(SPLIT).count().collect()}
    return compare_shares(dealt, {number: counts.get(number, 0) for number in range(3)}, dataset).said


def test_shares_that_did_not_come_are_said_with_their_cause(spark: SparkSession) -> None:
    shares = {"train": 0.7, "validation": 0.1, "test": 0.2}
    rows = spark.range(3_000).selectExpr("id", "if(id < 900, 1, id) AS x", "if(id < 1200, 'one', 'g' || id) AS g").persist()
    repeated = rows.select("x")
    message = shares_message(repeated, shares)
    assert ": one row repeats 900 times; " in message and "asked 70 %" in message and "SELECT DISTINCT" in message
    assert shares_message(repeated.distinct(), shares) == "" == shares_message(rows.select("id", "x"), shares, ("id",)), (
        "both remedies work"
    )
    grouped = shares_message(rows, {**shares, "group": "g"}, bound=0.9)
    assert ": the group g = one has 1,200 rows; " in grouped and "leave dataset.split.group out" in grouped
    assert shares_message(rows, shares) == "", "which is a remedy"
    smaller = rows.selectExpr("x", "'h' || id DIV 4 AS g")
    assert shares_message(smaller, {**shares, "group": "g"}, bound=0.05) == "", "a column of smaller groups is another"
    with pytest.raises(SourceError, match=r"the group g = one has 1,200 rows; .* or raise dataset.max_share_error"):
        shares_message(rows, {**shares, "group": "g"}, bound=0.05)
    published = repeated.selectExpr("x", "if(x % 10 = 9, 'validation', 'train') AS s")
    moved = shares_message(published, {"by": "s", "validation": 0.1})
    assert ": one row repeats 900 times; " in moved and moved.startswith("validation has 40 %, asked 10 %") and "test" not in moved
    assert shares_message(published.distinct(), {"by": "s", "validation": 0.1}) == "", "rows that were published as validation do not count"
    few = shares_message(spark.range(20).toDF("id"), {"train": 0.8, "validation": 0.1, "test": 0.1}, ("id",))
    assert "train has 90 %, asked 80 %" in few and ": chance, with only 20 rows; give more of them" in few
    days = rows.selectExpr("id", "if(id < 200, '2020', '2021') AS t")
    timed = shares_message(days, {"time": "t", "validation": "2021", "test": "2022"})
    assert timed.startswith("validation has 93 % of the rows, test has 0 % of the rows: 2,800 rows, all in validation, have t = 2021; ")
    assert "choose other bounds" in timed
    by_number = rows.selectExpr("id", "format_string('%04d', id) AS t")
    assert shares_message(by_number, {"time": "t", "validation": "2400", "test": "2700"}) == "", "other bounds are a remedy"
    rows.unpersist()


def config_with_repeats(folder: Path, query: str, bound: float) -> Config:
    """A pipeline over 3,000 rows, 900 of which are one."""
    if not (folder / "t.parquet").exists():
        x = np.where(np.arange(3_000) < 900, 5, np.arange(3_000))
        pq.write_table(pa.table({"x": x, "y": x / 7}), folder / "t.parquet")
        new_store(folder)
    return table_config(folder, folder / "t.parquet", query, {"train": 0.7, "validation": 0.1, "test": 0.2}, bound)


def table_config(folder: Path, table: Path, query: str, split: dict[str, object], bound: float = 0.3) -> Config:
    return parse(
        {
            "name": "repeating",
            "source": {"tables": {"t": {"format": "parquet", "path": str(table)}}, "query": query},
            "dataset": {
                "path": str(folder / "data"),
                "split": split,
                "max_share_error": bound,
                "features": {"x": "identity"},
                "target": {"y": "identity"},
            },
            "task": {"kind": "tabular"},
            "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
        },
        "repeating",
    )


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_shares_that_did_not_come_stand_at_the_end_in_the_manifest_and_on_the_page(tmp_path: Path) -> None:
    pages: list[Files] = []

    def page(survey: Survey) -> Files:
        pages.append(profile_files(survey))
        return pages[0]

    config = config_with_repeats(tmp_path, "SELECT * FROM t", 0.9)
    manifest = run(config, page)
    message = manifest.shares.said
    assert ": one row repeats 900 times; " in message and version_summary(config, manifest).splitlines()[1] == message
    assert manifest.shares.came["train"] == pytest.approx(manifest.splits["train"].rows / 3_000)
    html = pages[0]["data.html"]
    assert "Shares of the splits. " in html and "one row repeats 900 times" in html and ">asked<" in html
    with pytest.raises(SourceError, match=r"one row repeats 900 times; .* SELECT DISTINCT .* or raise dataset.max_share_error"):
        run(config_with_repeats(tmp_path, "SELECT * FROM t", 0.05))
    mended = run(config_with_repeats(tmp_path, "SELECT DISTINCT * FROM t", 0.05))
    assert not mended.shares.said and len(list((tmp_path / "data").iterdir())) == 2


SHARES = {"train": 0.7, "validation": 0.2, "test": 0.1}


def counts_by_value(rows: DataFrame, split: ByFraction, key: tuple[str, ...] = ()) -> dict[object, list[int]]:
    """Rows of each split by the value of `split.stratify`."""
    placed = split_assignment.assign_split(split_assignment.add_identity(rows, key), split)
    counts: dict[object, list[int]] = {}
    for value, number, count in placed.groupBy(split.stratify, SPLIT).count().collect():
        counts.setdefault(value, [0, 0, 0])[number] = count
    return counts


def test_p2_p6_a_stratified_split_has_exact_shares_of_each_value_however_rows_come(spark: SparkSession) -> None:
    rows = spark.range(3_000).selectExpr(
        "id", "CASE WHEN id < 2000 THEN 'a' WHEN id < 2955 THEN 'b' WHEN id < 2999 THEN NULL ELSE 'z' END AS c"
    )
    split = ByFraction(**SHARES, stratify="c")
    counts = counts_by_value(rows, split, ("id",))
    assert counts["a"] == [1400, 400, 200] and counts["z"] == [1, 0, 0]
    for value, total in (("b", 955), (None, 44)):
        assert sum(counts[value]) == total
        assert all(abs(count - share * total) < 1 for count, share in zip(counts[value], SHARES.values(), strict=True))
    numbers = split_numbers(rows, split, ("id",))
    assert split_numbers(rows.orderBy(F.desc("id")).repartition(7), split, ("id",)) == numbers and len(numbers) == 3_000
    unstratified = split_numbers(rows, ByFraction(**SHARES), ("id",))
    assert sum(numbers[row] != unstratified[row] for row in numbers) < 300, "rows keep the order of the hash that assigns splits"
    assert "1 of 4 values of c have too few rows" in split_assignment.stratify(split_assignment.add_identity(rows, ("id",)), split).note  # type: ignore[union-attr]


def test_equal_rows_and_groups_of_a_stratum_stay_together(spark: SparkSession) -> None:
    rows = spark.range(4_000).selectExpr("id DIV 4 AS x", "id % 8 < 4 AS c")
    placed = split_assignment.assign_split(split_assignment.add_identity(rows, ()), ByFraction(**SHARES, stratify="c"))
    assert placed.groupBy("x").agg(F.count_distinct(SPLIT).alias("n")).where("n > 1").isEmpty()
    assert counts_by_value(rows, ByFraction(**SHARES, stratify="c")) == {value: [1400, 400, 200] for value in (True, False)}
    assert counts_by_value(spark.range(500).selectExpr("1 AS x", "2 AS c"), ByFraction(**SHARES, stratify="c")) == {2: [500, 0, 0]}
    grouped = spark.range(4_000).selectExpr("id", "id DIV 40 AS g", "id DIV 2000 AS c")
    numbers = split_numbers(grouped, ByFraction(**SHARES, group="g", stratify="c"))
    assert len({(row // 40, number) for row, number in numbers.items()}) == 100
    assert counts_by_value(grouped, ByFraction(**SHARES, group="g", stratify="c")) == {value: [1400, 400, 200] for value in (0, 1)}
    with pytest.raises(SourceError, match=r"100 groups of g have more than one value of c, .*; name a column with one value in a group"):
        counts_by_value(grouped.withColumn("c", F.col("id") % 2), ByFraction(**SHARES, group="g", stratify="c"))


def test_rows_that_are_refused_count_for_no_stratum(spark: SparkSession) -> None:
    rows = split_assignment.add_identity(spark.range(2_000).selectExpr("id", "id % 2 AS c"), ("id",))
    judged = split_assignment.assign_split(refuse(rows, F.when(F.col("id") < 1000, F.lit("small"))), ByFraction(**SHARES, stratify="c"))
    counts = {(row.c, row[SPLIT]): row["count"] for row in accepted_rows(judged).groupBy("c", SPLIT).count().collect()}
    assert [counts[0, number] for number in range(3)] == [counts[1, number] for number in range(3)] == [350, 100, 50]
    assert reasons(judged) == {"small": 1_000}


@pytest.mark.parametrize("column", ["id", "id DIV 1.5"])
def test_a_column_of_too_many_values_is_no_stratum(spark: SparkSession, column: str) -> None:
    rows = spark.range(600).selectExpr("id", f"{column} AS c")
    with pytest.raises(SourceError, match=r"c has \d+ values in 600 rows, .* width_bucket\(c, 0, 100, 10\), or leave stratify out"):
        counts_by_value(rows, ByFraction(**SHARES, stratify="c"), ("id",))
    remedied = counts_by_value(rows.withColumn("c", F.expr("width_bucket(c, 0, 100, 10)")), ByFraction(**SHARES, stratify="c"), ("id",))
    assert 2 < len(remedied) <= 12


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_p6_a_stratified_version_has_one_digest_for_one_file_or_many(tmp_path: Path) -> None:
    digests = []
    for files in (1, 5):
        folder = tmp_path / str(files)
        (folder / "t").mkdir(parents=True)
        new_store(folder)
        table = pa.table(
            {"x": np.arange(1_000) % 400, "label": np.where(np.arange(1_000) % 10 == 0, "rare", "usual"), "y": np.arange(1_000.0)}
        )
        for number in range(files):
            rows = np.arange(number, 1_000, files)[::-1]
            pq.write_table(table.take(rows), folder / "t" / f"{number}.parquet")
        config = table_config(folder, folder / "t", "SELECT * FROM t", {**SHARES, "stratify": "label"})
        manifest = run(config, lambda survey: {})
        assert [manifest.splits[name].rows for name in SHARES] == [700, 200, 100] and not manifest.shares.said
        digests.append(manifest.digest)
    assert digests[0] == digests[1]

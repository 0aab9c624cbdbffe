"""A version of a parent's rows and of those that came since: which rows it has, what it shares, and when all rows are read after all."""

import json
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession
from stores import new_store

from pipelines.config import Config, parse
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.data_profile import Survey
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.raw_inputs import read_raw_rows
from pipelines.data.versions.row_keys import read_keys
from pipelines.data.versions.versions import open_version, read_column
from pipelines.errors import ConfigError, DatasetError
from pipelines.etl.run import run
from pipelines.etl.write import increment_part_bytes
from pipelines.serving.registry import gates

RANDOM = np.random.default_rng(3)
NUMBER = {"number": {"encoder": "identity", "column": "id"}}
DAY = 400
"""Rows that come each day."""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("tracking"))


def day(number: int, rows: int = DAY) -> pa.Table:
    """The rows of one day, with keys of their own."""
    values = RANDOM.standard_normal(rows).clip(-3, 3)  # no age is implausible
    return pa.table(
        {
            "id": np.arange(number * DAY, number * DAY + rows),
            "age": 40 + 10 * values,
            "plan": np.array(["basic", "plus", "pro"])[RANDOM.integers(0, 3, rows)],
            "left": values > 0.2,
        }
    )


def config(folder: Path, uri: str, source: dict[str, Any] | None = None, **dataset: Any) -> Config:
    table = {"format": "parquet", "path": f"{folder}/raw"}
    return parse(
        {
            "name": "people",
            "source": source or {"tables": {"people": table}, "expect": {"plausible": "age > 5"}, "max_quarantined": 0.2},
            "dataset": {
                "path": f"{folder}/data",
                "key": ["id"],
                "features": {"age": "standardize", "plan": "vocabulary", **NUMBER},
                "target": {"left": "binary"},
                **dataset,
            },
            "task": {"kind": "tabular"},
            "tracking": {"uri": uri},
        },
        "test",
    )


def arrive(folder: Path, number: int, table: pa.Table | None = None) -> pa.Table:
    (folder / "raw").mkdir(exist_ok=True)
    table = day(number) if table is None else table
    pq.write_table(table, folder / f"raw/day-{number}.parquet")
    return table


def set_digests(manifest: Manifest) -> dict[str, str]:
    return {split: summary.rows_digest for split, summary in manifest.splits.items()}


def ids(config: Config) -> list[int]:
    """The keys of all rows of the version that training would open."""
    version = open_version(config.dataset.path, config.data_identity)
    column = next(column for column in version.columns if column.name == "number")
    return sorted(np.concatenate([read_column(version, split, column) for split in version.manifest.splits]).astype(int).tolist())


def test_p9_a_chain_of_increments_has_the_rows_of_an_etl_in_full(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    settings = config(tmp_path, uri)
    arrive(tmp_path, 0)
    first = run(settings)
    manifests = [first]
    for number in (1, 2):
        arrive(tmp_path, number)
        manifests.append(run(settings, parent_name="previous"))
    last = manifests[-1]
    assert [manifest.parent for manifest in manifests] == ["", first.version, manifests[1].version]
    assert last.parent_digest == manifests[1].digest and last.encoders["age"].state == first.encoders["age"].state
    assert ids(settings) == list(range(3 * DAY)) and sum(summary.rows for summary in last.splits.values()) == 3 * DAY
    root = tmp_path / "data" / last.version
    written = [pq.read_metadata(file).num_rows for file in root.glob("data-*/*/*.parquet")]
    assert sum(written) == DAY, "parts of the parents are shared"
    version = open_version(settings.dataset.path, settings.data_identity)
    reader = Reader(version, "train")
    assert sum(len(reader.read(number)["age"]) for number in range(len(reader.groups))) == last.splits["train"].rows
    # The rows of an ETL in full, with the encoders of the first day, are those of the first day's encoders on all rows.
    full = run(settings.model_copy(update={"dataset": settings.dataset.model_copy(update={"path": f"{tmp_path}/full"})}))
    assert full.parent == "" and {split: summary.rows for split, summary in full.splits.items()} == {
        split: summary.rows for split, summary in last.splits.items()
    }


def test_the_set_digest_is_that_of_an_etl_in_full_with_the_same_encoders(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    features = {"age": "identity", **NUMBER}
    settings = config(tmp_path, uri, features=features)
    for number in range(3):
        arrive(tmp_path, number)
        grown = run(settings, parent_name="previous" if number else "")
    assert grown.parent
    full = run(settings)
    assert full.parent == "" and full.version != grown.version and full.digest != grown.digest
    assert set_digests(full) == set_digests(grown) and len(set(set_digests(full).values())) == 3


def test_the_page_of_an_increment_shows_the_rows_that_came(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    settings, surveys = config(tmp_path, uri), list[Survey]()

    def page(survey: Survey) -> dict[str, str]:
        surveys.append(survey)
        return {}

    arrive(tmp_path, 0)
    run(settings)
    plans = arrive(tmp_path, 1)["plan"].to_pylist()
    run(settings, page, parent_name="previous")
    (survey,) = surveys
    sampled = pa.concat_tables(survey.samples.values())
    assert sorted(sampled["id"].to_pylist()) == list(range(DAY, 2 * DAY)) and survey.contents.sum() == DAY
    counted = survey.counts["plan"]
    assert dict(zip(counted.values, counted.rows.sum(axis=1).tolist(), strict=True)) == Counter(plans)


def test_an_increment_is_divided_among_tasks_where_its_rows_suffice() -> None:
    row_group, part = 16 * 2**20, 256 * 2**20
    assert increment_part_bytes({0: 10 * row_group, 1: row_group}, row_group, part) == 10 * row_group // 8
    assert increment_part_bytes({0: 100, 1: 10}, row_group, part) == row_group
    assert increment_part_bytes({0: 100 * part}, row_group, part) == increment_part_bytes({0: part * 8}, row_group, part) == part
    assert increment_part_bytes({}, row_group, 100) == 100


def test_without_new_rows_the_parent_is_up_to_date(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    settings = config(tmp_path, uri)
    arrive(tmp_path, 0)
    first = run(settings)
    assert run(settings, parent_name="previous") == first
    arrive(tmp_path, 1)
    second = run(settings, parent_name=first.version)
    assert run(settings, parent_name=first.version) == second and run(settings, parent_name="previous") == second


def test_refused_rows_and_repeated_ones_are_in_the_quarantine_of_the_increment(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    settings = config(tmp_path, uri)
    old = arrive(tmp_path, 0)
    run(settings)
    new = day(1)
    ages = new["age"].to_numpy().copy()
    ages[:5] = 1.0
    new = new.set_column(1, "age", pa.array(ages))
    arrive(tmp_path, 1, pa.concat_tables([new, old.slice(10, 7)]))
    manifest = run(settings, parent_name="previous")
    assert manifest.quarantined == {"plausible": 5, "repeated key: id": 7}
    assert ids(settings) == [*range(DAY), *range(DAY + 5, 2 * DAY)]


def test_a_file_that_is_gone_or_a_query_that_takes_rows_together_is_read_in_full(
    tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pipelines")
    table = {"people": {"format": "parquet", "path": f"{tmp_path}/raw"}}
    query = "SELECT max(id) AS id, avg(age) AS age, plan, bool_or(left) AS left FROM people GROUP BY plan, id % 40"
    settings = config(tmp_path, uri, {"tables": table, "query": query})
    arrive(tmp_path, 0)
    run(settings)
    arrive(tmp_path, 1)
    assert run(settings, parent_name="previous").parent == ""
    assert "takes several rows together (Aggregate)" in caplog.text
    plain = config(tmp_path, uri)
    run(plain)
    (tmp_path / "raw/day-0.parquet").unlink()
    assert run(plain, parent_name="previous").parent == "" and "day-0.parquet is gone or altered since" in caplog.text
    assert ids(plain) == list(range(DAY, 2 * DAY))


def test_new_rows_are_joined_with_tables_that_stay(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    tables = {
        "people": {"format": "parquet", "path": f"{tmp_path}/raw"},
        "plans": {"format": "parquet", "path": f"{tmp_path}/plans.parquet"},
    }
    pq.write_table(pa.table({"plan": ["basic", "plus", "pro"], "price": [1.0, 2.0, 5.0]}), tmp_path / "plans.parquet")
    query = "WITH priced AS (SELECT p.*, price FROM people p LEFT JOIN plans USING (plan)) SELECT * FROM priced WHERE age > 0"
    settings = config(tmp_path, uri, {"tables": tables, "query": query}, features={"price": "identity", **NUMBER})
    arrive(tmp_path, 0)
    run(settings)
    arrive(tmp_path, 1)
    grown = run(settings, parent_name="previous")
    assert grown.parent and set_digests(grown) == set_digests(run(settings)) and ids(settings) == list(range(2 * DAY))


SCHEMA = "id BIGINT, age DOUBLE, plan STRING, left BOOLEAN"


def write_tables(folder: Path) -> dict[str, dict[str, Any]]:
    """A table in each of the formats that are read in ways of their own, with the rows of one day each."""
    days = [day(number) for number in range(5)]
    pq.write_table(days[0], folder / "rows.parquet")
    orc.write_table(days[1], folder / "rows.orc")
    pyarrow.csv.write_csv(days[2], folder / "rows.csv")
    (folder / "rows.json").write_text("\n".join(map(json.dumps, days[3].to_pylist())))
    deltalake.write_deltalake(folder / "rows", days[4])
    (folder / "files/made=here").mkdir(parents=True)
    (folder / "files/made=here/one").write_bytes(b"one")
    return {
        "parquet_rows": {"format": "parquet", "path": f"{folder}/*.parquet"},
        "orc_rows": {"format": "orc", "path": f"{folder}/*.orc"},
        "csv_rows": {"format": "csv", "path": f"{folder}/*.csv", "schema": SCHEMA, "options": {"header": True}},
        "json_rows": {"format": "json", "path": f"{folder}/*.json", "schema": SCHEMA},
        "delta_rows": {"format": "delta", "path": f"{folder}/rows"},
        "files": {"format": "binaryFile", "path": f"{folder}/files"},
    }


def test_no_row_of_an_unchanged_table_comes_again(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    """Whatever its format, and also without a key, which would find the second one."""
    tables = write_tables(tmp_path)
    branches = [f"SELECT id, age, plan, left FROM {name}" for name in tables if name != "files"]
    query = " UNION ALL ".join([*branches, "SELECT -length, double(length), made, true FROM files"])
    settings = config(tmp_path, uri, {"tables": tables, "query": query}, features={"age": "identity", **NUMBER}, key=[])
    first = run(settings)
    for write in (
        lambda: pq.write_table(day(5), tmp_path / "more.parquet"),
        lambda: pyarrow.csv.write_csv(day(6), tmp_path / "more.csv"),
        lambda: deltalake.write_deltalake(tmp_path / "rows", day(7), mode="append"),
    ):
        write()
        grown = run(settings, parent_name="previous")
        assert grown.parent, "an increment"
    assert sum(split.rows for split in grown.splits.values()) == sum(split.rows for split in first.splits.values()) + 3 * DAY
    assert set_digests(grown) == set_digests(run(settings)) and ids(settings) == [-3, *range(8 * DAY)]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("{people} UNION ALL SELECT -count(*), 1.0, true FROM plans", "rows that would come again"),
        ("WITH c AS (SELECT count(*) AS n FROM plans) {people} UNION ALL SELECT -n, 1.0, true FROM c", "rows that would come again"),
        ("{people} UNION ALL VALUES (-1L, 2.0, true)", "rows that would come again"),
        ("{people} UNION ALL SELECT p.id, q.age, p.left FROM plans p LEFT JOIN plans q ON p.id = q.id WHERE p.age > 0", ""),
    ],
)
def test_what_is_beside_new_rows_does_not_come_again(
    tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture, query: str, reason: str
) -> None:
    """An aggregate of an unchanged table has a row even of none. A join has none of none."""
    caplog.set_level(logging.WARNING, "pipelines")
    tables = {name: {"format": "parquet", "path": f"{tmp_path}/{folder}"} for name, folder in (("people", "raw"), ("plans", "plans"))}
    (tmp_path / "plans").mkdir()
    pq.write_table(day(9, 10), tmp_path / "plans/one.parquet")
    source = {"tables": tables, "query": query.format(people="SELECT id, age, left FROM people")}
    settings = config(tmp_path, uri, source, features={"age": "identity", **NUMBER}, key=[])
    arrive(tmp_path, 0)
    run(settings)
    arrive(tmp_path, 1)
    grown = run(settings, parent_name="previous")
    assert bool(grown.parent) == (reason == "") and reason in caplog.text
    assert set_digests(grown) == set_digests(run(settings))


def test_windows_are_read_in_full(tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """A lag of the first new row is in an earlier one."""
    caplog.set_level(logging.WARNING, "pipelines")
    windows = {"order": "id", "lags": {"age": 1}}
    source = {"tables": {"people": {"format": "parquet", "path": f"{tmp_path}/raw"}}, "windows": windows}
    split = {"time": "id", "validation": 300, "test": 350}
    settings = config(tmp_path, uri, source, features={"age_lag_1": "identity", **NUMBER}, split=split)
    arrive(tmp_path, 0)
    run(settings)
    arrive(tmp_path, 1)
    grown = run(settings, parent_name="previous")
    assert grown.parent == "" and "source.windows reads rows of other times" in caplog.text


def test_a_parent_of_another_pipeline_is_an_error_and_another_schema_is_read_in_full(
    tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pipelines")
    settings = config(tmp_path, uri)
    arrive(tmp_path, 0, day(0).append_column("seats", pa.array(np.full(DAY, 4, np.int32))))
    first = run(settings)
    other = config(tmp_path, uri, features={"age": "identity"})
    with pytest.raises(DatasetError, match=f"--from {first.version}: that version was made from another"):
        run(other, parent_name=first.version)
    with pytest.raises(DatasetError, match="holds no dataset version"):
        run(settings, parent_name="000000000000")
    arrive(tmp_path, 1, day(1).append_column("seats", pa.array(np.full(DAY, 2**40))))
    assert run(settings, parent_name="previous").parent == ""
    assert "seats is int64, and was int32; cast it in source.query, or all rows are read" in caplog.text
    query = "SELECT * EXCEPT (seats), CAST(seats AS bigint) AS seats FROM people"
    cast = config(tmp_path, uri, {"tables": settings.source.model_dump(mode="json")["tables"], "query": query})
    run(cast)
    arrive(tmp_path, 2, day(2).append_column("seats", pa.array(np.full(DAY, 5, np.int16))))
    assert run(cast, parent_name="previous").parent, "the types of the query are those of the parent"


@pytest.mark.parametrize("newest", ["", "seen_on"])
def test_a_night_that_leaves_nothing_to_write_makes_a_version(tmp_path: Path, uri: str, spark: SparkSession, newest: str) -> None:
    """Its rows are left out by the query, or are older than those that there are; or its file is empty."""
    source = {"tables": {"people": {"format": "parquet", "path": f"{tmp_path}/raw"}}, "query": f"SELECT * FROM people WHERE id < {DAY}"}
    settings = config(tmp_path, uri, source, **({"newest": newest} if newest else {}))
    arrive(tmp_path, 0, change_ages(day(0), 0, seen_on=5))
    first = run(settings)
    for number, rows in ((1, change_ages(day(0 if newest else 1), 9, seen_on=1)), (2, change_ages(day(1), 0, seen_on=1).slice(0, 0))):
        arrive(tmp_path, number, rows)
        grown = run(settings, parent_name="previous")
        assert grown.parent and set_digests(grown) == set_digests(first)


def test_files_that_have_fewer_columns_than_all_together_are_read_with_them(
    tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pipelines")
    table = {"format": "parquet", "path": f"{tmp_path}/raw", "options": {"mergeSchema": True}}
    settings = config(tmp_path, uri, {"tables": {"people": table}, "query": "SELECT *, coalesce(seats, 5) AS places FROM people"})
    arrive(tmp_path, 0, day(0).append_column("seats", pa.array(np.full(DAY, 4))))
    run(settings)
    arrive(tmp_path, 1)
    grown = run(settings, parent_name="previous")
    assert grown.parent == "" and "the new rows alone cannot be read" in caplog.text
    assert sum(split.rows for split in grown.splits.values()) == 2 * DAY


def change_ages(rows: pa.Table, number: int, seen_on: int) -> pa.Table:
    """The rows with other ages, and the day on which they were seen."""
    ages = rows["age"].to_numpy() + number
    return rows.set_column(1, "age", pa.array(ages)).append_column("seen_on", pa.array(np.full(len(rows), seen_on)))


@pytest.mark.parametrize("newest", ["seen_on", ""])
def test_a_key_that_comes_again_is_settled_as_by_an_etl_in_full(tmp_path: Path, uri: str, spark: SparkSession, newest: str) -> None:
    features = {"age": "identity", **NUMBER}
    settings = config(tmp_path, uri, features=features, **({"newest": newest} if newest else {}))
    days = [day(number) for number in range(3)]
    arrive(tmp_path, 0, change_ages(days[0], 0, seen_on=5))
    run(settings)
    newer, older = change_ages(days[0].slice(0, 30), 7, seen_on=6), change_ages(days[0].slice(50, 30), 8, seen_on=4)
    arrive(tmp_path, 1, pa.concat_tables([change_ages(days[1], 0, seen_on=6), newer, older]))
    run(settings, parent_name="previous")
    # Rows of both days are replaced, by rows of which each key comes twice.
    copies = [change_ages(days[part].slice(20, 20), number, seen_on=number) for part in (0, 1) for number in (7, 9, 8)]
    arrive(tmp_path, 2, pa.concat_tables([change_ages(days[2], 0, seen_on=7), *copies]))
    grown = run(settings, parent_name="previous")
    full = run(settings)
    assert grown.parent and full.parent == "" and set_digests(grown) == set_digests(full)
    assert ids(settings) == list(range(3 * DAY))
    assert grown.quarantined == ({} if newest else {"repeated key: id": grown.quarantined["repeated key: id"]})
    assert grown.balance is not None and (grown.balance.superseded > 0) == bool(newest)


def test_keys_of_rows_that_an_encoder_refused_are_not_forgotten(
    tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest row of a key stands before older ones that come later, also if it is refused."""
    caplog.set_level(logging.WARNING, "pipelines")
    source = {"tables": {"people": {"format": "parquet", "path": f"{tmp_path}/raw"}}, "max_quarantined": 0.5}
    features = {"age": "identity", **NUMBER}
    settings = config(tmp_path, uri, source, features=features, newest="seen_on")
    rows = change_ages(day(0), 0, seen_on=5)
    ages = [None] * 20 + rows["age"].to_pylist()[20:]
    arrive(tmp_path, 0, rows.set_column(1, "age", pa.array(ages, pa.float64())))
    assert run(settings, parent_name="previous").quarantined != {} and "holds no version that was made from this config" in caplog.text
    expecting = config(tmp_path, uri, {**source, "expect": {"has age": "age IS NOT NULL"}}, features=features, newest="seen_on")
    run(expecting)
    arrive(tmp_path, 1, change_ages(rows.drop(["seen_on"]).slice(0, 20), 7, seen_on=4))
    assert run(settings, parent_name="previous").parent == "" and "refused 20 rows of" in caplog.text
    assert ids(settings) == list(range(20, DAY))
    # An expectation refuses rows before keys are compared, so that the late rows stay, in an increment and in full.
    grown = run(expecting, parent_name="previous")
    assert grown.parent and set_digests(grown) == set_digests(run(expecting)) and ids(expecting) == list(range(DAY))


def test_promotion_finds_the_test_rows_of_an_increment(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    settings = config(tmp_path, uri, features={"age": "identity", **NUMBER}, newest="seen_on")
    rows = day(0)
    arrive(tmp_path, 0, change_ages(rows, 0, seen_on=5))
    run(settings)
    arrive(tmp_path, 1, change_ages(rows, 1, seen_on=6))
    grown = run(settings, parent_name="previous")
    table, sources = gates.test_rows(spark, settings, grown, 2 * DAY)
    assert grown.parent and sources.holds and len(table) == grown.splits["test"].rows and set(table["seen_on"].to_pylist()) == {6}
    assert ids(settings) == list(range(DAY)), "every row of the parent is replaced"


def test_raw_rows_and_keys_stay_beside_rows_that_are_written_again(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    settings = config(tmp_path, uri, newest="seen_on")
    rows = day(0)
    arrive(tmp_path, 0, change_ages(rows, 0, seen_on=1))
    run(settings)
    arrive(tmp_path, 1, change_ages(rows.slice(100, 60), 3, seen_on=2))
    run(settings, parent_name="previous")
    version = open_version(settings.dataset.path, settings.data_identity)
    for split in ("validation", "test"):
        column = next(column for column in version.columns if column.name == "number")
        numbers = read_column(version, split, column).astype(int).tolist()
        raw = read_raw_rows(version.filesystem, version.root, version.parts(split), range(len(numbers)))
        assert raw is not None and raw["id"].to_pylist() == numbers
    keys = pa.concat_tables([keys for _, keys in read_keys(version.filesystem, version.root, version.row_groups)])
    assert len(keys) == DAY == len(set(keys["row"].to_pylist())) and sorted(set(keys["newest"].to_pylist())) == [1, 2]


def test_a_column_that_orders_nothing_is_no_newest(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    arrive(tmp_path, 0)
    with pytest.raises(ConfigError, match=r"dataset\.newest: plan is string; give a column of dates, timestamps or whole numbers"):
        run(config(tmp_path, uri, newest="plan"))
    with pytest.raises(ConfigError, match="newest is age, but no key says"):
        config(tmp_path, uri, newest="age", key=[])


def test_a_delta_table_grows_by_its_log(tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pipelines")
    table = str(tmp_path / "table")
    settings = config(tmp_path, uri, {"tables": {"people": {"format": "delta", "path": table}}}, features={"age": "identity", **NUMBER})
    deltalake.write_deltalake(table, day(0))
    first = run(settings)
    deltalake.write_deltalake(table, day(1), mode="append")
    deltalake.DeltaTable(table).optimize.compact()
    grown = run(settings, parent_name="previous")
    assert grown.parent == first.version and set_digests(grown) == set_digests(run(settings)) and ids(settings) == list(range(2 * DAY))
    deltalake.DeltaTable(table).delete("id < 10")
    assert run(settings, parent_name="previous").parent == "" and "DELETE" in caplog.text and ids(settings) == list(range(10, 2 * DAY))


def test_many_small_parts_become_one(tmp_path: Path, uri: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.data.versions.merge_parts.MOST_SMALL_PARTS", 2)
    settings = config(tmp_path, uri, features={"age": "identity", **NUMBER})
    for number in range(4):
        arrive(tmp_path, number)
        grown = run(settings, parent_name="previous" if number else "")
    assert {split: summary.parts for split, summary in grown.splits.items()} == dict.fromkeys(grown.splits, 2), "the last night's beside it"
    assert set_digests(grown) == set_digests(run(settings)) and ids(settings) == list(range(4 * DAY))
    version = open_version(f"{settings.dataset.path}/{grown.version}")
    numbers = read_column(version, "test", next(column for column in version.columns if column.name == "number")).astype(int)
    raw = read_raw_rows(version.filesystem, version.root, version.parts("test"), range(len(numbers)))
    assert raw is not None and raw["id"].to_pylist() == numbers.tolist()
    assert np.abs(np.diff(numbers // DAY)).sum() > len(numbers) / 4, "the nights are mixed"


def test_parts_stay_for_the_versions_that_share_them(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    """Although the manifest of the version that wrote them is gone, and they are older than a day."""
    settings = config(tmp_path, uri)
    arrive(tmp_path, 0)
    first = run(settings)
    dead = tmp_path / "data" / first.version / "data-dead/split=train/part.parquet"
    arrive(tmp_path, 1)
    second = run(settings, parent_name="previous")
    dead.parent.mkdir(parents=True)
    dead.write_bytes(b"")
    (tmp_path / "data" / first.version / "manifest.json").unlink()
    for path in [*(tmp_path / "data").rglob("*")]:
        os.utime(path, (0, 0))
    arrive(tmp_path, 2)
    assert run(settings, parent_name="previous").parent == second.version
    assert ids(settings) == list(range(3 * DAY)) and not dead.exists()


def test_encoders_are_fitted_anew_where_new_rows_have_drifted(
    tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pipelines")
    features = {"age": "standardize", "plan": "vocabulary"}
    settings = config(tmp_path, uri, refit="drift", features=features)
    arrive(tmp_path, 0)
    first = run(settings)
    arrive(tmp_path, 1)
    second = run(settings, parent_name="previous")
    assert second.parent == first.version and second.encoders["age"].state == first.encoders["age"].state
    rows = day(2)
    arrive(tmp_path, 2, rows.set_column(1, "age", pa.array(rows["age"].to_numpy() + 60)))
    third = run(settings, parent_name="previous")
    assert third.parent == "" and third.encoders["age"].state != first.encoders["age"].state
    assert "dataset.refit is drift, and the rows that came have in age another distribution: PSI" in caplog.text
    committed = {path.parent.name for path in (tmp_path / "data").glob("*/manifest.json")}
    assert committed == {first.version, second.version, third.version}
    assert all(path.parts[-2] in committed for path in (tmp_path / "data").glob("*/*")), "nothing is half made"
    arrive(tmp_path, 3)
    always = config(tmp_path, uri, refit="always", features=features)
    assert run(always, parent_name="previous").parent == "" and "dataset.refit is always" in caplog.text

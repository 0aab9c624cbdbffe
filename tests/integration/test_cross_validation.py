"""Cross-validation: where Spark puts the rows, what a version of folds holds, and the trainings of all its folds."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stores import new_store
from trainings import open_dataset

from pipelines import api
from pipelines.config import Config, parse
from pipelines.config.dataset.dataset import ByFold
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.folds import select_fold
from pipelines.errors import ConfigError, SourceError
from pipelines.etl.refusals import refuse
from pipelines.etl.splits import split_assignment
from pipelines.etl.splits.fold_assignment import add_folds
from pipelines.etl.splits.split_assignment import FOLDS
from pipelines.launch import cross_validation
from pipelines.planner.at_hand import choose_layout_of_folds
from pipelines.report.data_profile import profile_files


def row_folds(rows: DataFrame, split: ByFold, key: tuple[str, ...] = ("id",)) -> dict[int, tuple[int, ...]]:
    """The folds of each row in all repeats, by its id."""
    placed, _ = add_folds(split_assignment.add_identity(rows, key), split)
    return {row[0]: tuple(row)[1:] for row in placed.select("id", *FOLDS[: split.repeats]).collect()}


def test_p6_a_row_s_fold_follows_from_its_key_seed_and_repeat(spark: SparkSession) -> None:
    rows = spark.range(4_000).selectExpr("id", "id % 7 AS x")
    split = ByFold(folds=4, repeats=2)
    numbers = row_folds(rows, split)
    first_rows = " ".join(f"{first}{second}" for first, second in (numbers[row] for row in range(6)))
    assert first_rows == "13 41 23 12 42 12", "see split_assignment.VERSION"
    third = rows.where("id % 3 = 0").withColumn("x", F.lit(0)).orderBy(F.desc("id")).repartition(5)
    assert row_folds(third, split) == {row: folds for row, folds in numbers.items() if row % 3 == 0}, "no other row counts"
    pairs = np.unique([4 * first + second for first, second in numbers.values()], return_counts=True)[1]
    assert len(pairs) == 16 and abs(pairs - 250).max() < 90, "repeats are independent, and folds of about equal size"
    other_seed = row_folds(rows, ByFold(folds=4, seed=1))
    assert 0.6 < np.mean([other_seed[row][0] != numbers[row][0] for row in numbers]) < 0.9


def test_groups_and_equal_rows_are_in_one_fold(spark: SparkSession) -> None:
    rows = spark.range(2_000).selectExpr("id", "id DIV 20 AS g", "id DIV 500 AS c", "id DIV 4 AS x")
    for split in (ByFold(folds=5, group="g"), ByFold(folds=5, group="g", stratify="c")):
        numbers = row_folds(rows, split)
        assert len({(row // 20, *folds) for row, folds in numbers.items()}) == 100
    counts = np.bincount([row // 500 * 5 + numbers[row][0] - 1 for row in numbers])
    assert (counts == 100).all(), "each value has five groups in every fold"
    placed, _ = add_folds(split_assignment.add_identity(rows.select("x", "c"), ()), ByFold(folds=5, stratify="c"))
    assert placed.groupBy("x").agg(F.count_distinct(FOLDS[0]).alias("n")).where("n > 1").isEmpty()
    with pytest.raises(SourceError, match="100 groups of g have more than one value of c"):
        row_folds(rows.withColumn("c", F.col("id") % 2), ByFold(folds=5, group="g", stratify="c"))


@pytest.mark.full
def test_p2_strata_differ_by_one_row_between_folds_and_refused_rows_count_for_none(spark: SparkSession) -> None:
    rows = spark.range(1_003).selectExpr(
        "id", "CASE WHEN id < 700 THEN 'a' WHEN id < 999 THEN NULL WHEN id < 1001 THEN 'two' ELSE 'z' END AS c"
    )
    split = ByFold(folds=5, repeats=2, stratify="c")
    identified = refuse(split_assignment.add_identity(rows, ("id",)), F.when(F.col("id") < 100, F.lit("small")))
    placed, note = add_folds(identified, split)
    for name in FOLDS[:2]:
        counts = {value: np.zeros(5, int) for value in ("a", None, "two", "z")}
        for value, fold, count in placed.where("id >= 100").groupBy("c", name).count().collect():
            counts[value][fold - 1] = count
        assert {value: numbers.sum() for value, numbers in counts.items()} == {"a": 600, None: 299, "two": 2, "z": 2}
        assert all(np.ptp(numbers) <= 1 for numbers in (*counts.values(), sum(counts.values())))
    assert note.startswith("dataset.split.stratify: 2 of 4 values of c have fewer rows than there are folds")
    fewer, more = ByFold(folds=3, stratify="c"), rows.unionByName(rows.where("id >= 999").withColumn("id", F.col("id") + 10_000))
    assert "of 3 values" not in add_folds(split_assignment.add_identity(rows.where("id < 999"), ("id",)), split)[1]
    assert not add_folds(split_assignment.add_identity(more, ("id",)), fewer)[1], "fewer folds and more rows are remedies"
    repeated = row_folds(rows.orderBy(F.desc("id")).repartition(3), split)
    assert repeated == row_folds(rows, split)


def folds_config(folder: Path, split: dict[str, Any], **train: Any) -> Config:
    settings = {"epochs": 2, "global_batch": 16, "shards": 4, "lr": 0.01, "remainder": "keep", "storage": str(folder / "runs"), **train}
    return parse(
        {
            "name": "folds",
            "source": {
                "tables": {"t": {"format": "parquet", "path": str(folder / "t")}},
                "query": "SELECT *, x > 0 AS label FROM t",
                "expect": {"known": "x < 4"},
            },
            "dataset": {
                "path": str(folder / "data"),
                "key": ["id"],
                "split": split,
                "row_group_bytes": 1,
                "features": {"x": "standardize", "*": "auto"},
                "target": {"label": "binary"},
            },
            "task": {"kind": "tabular", "hidden": [4]},
            "train": settings,
            "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
        },
        "folds",
    )


def write_table(folder: Path, rows: int) -> None:
    (folder / "t").mkdir(parents=True)
    new_store(folder)
    random = np.random.default_rng(3)
    columns = {"id": np.arange(rows), "x": random.standard_normal(rows), "y": random.standard_normal(rows)}
    columns["x"][: rows // 100] = 5.0  # refused
    pq.write_table(pa.table(columns), folder / "t" / "t.parquet")


@pytest.mark.usefixtures("spark")
def test_p2_p7_p8_a_version_of_folds_has_every_row_and_the_fold_of_each(tmp_path: Path) -> None:
    write_table(tmp_path, 500)
    config = folds_config(tmp_path, {"folds": 5, "repeats": 2, "stratify": "label"})
    pages: list[str] = []
    manifest = prepare_with_page(config, pages)
    assert manifest.splits["train"].rows == 495 and manifest.balance and manifest.balance.refused == 5
    assert manifest.folds and {name: sum(rows) for name, rows in manifest.folds.rows.items()} == {"fold_1": 495, "fold_2": 495}
    assert all(max(rows) - min(rows) <= 1 for rows in manifest.folds.rows.values())
    assert [column.name for column in manifest.columns if column.role == "feature"] == ["x", "y"]
    assert "__fold" not in manifest.raw_schema and "__fold" not in pages[0]
    version = open_dataset(config)
    for training in (1, 7, 10):
        selected = select_fold(version, training)
        rows = [Reader(selected, split) for split in ("train", "validation", "test")]
        values = np.concatenate([reader.read(number)["x"] for reader in rows for number in range(len(reader.groups))])
        everything = Reader(version, "train")
        expected = np.concatenate([everything.read(number)["x"] for number in range(len(everything.groups))])
        assert np.array_equal(np.sort(values), np.sort(expected))
    check_layout_of_folds(tmp_path, config)
    second = prepare_with_page(config, pages)
    assert second.digest == manifest.digest and len(list((tmp_path / "data").iterdir())) == 1


def check_layout_of_folds(folder: Path, config: Config) -> None:
    """A plan chooses one layout for all trainings."""
    settings = {"folds": 5, "repeats": 2, "stratify": "label"}
    chosen = choose_layout_of_folds(folds_config(folder, settings, parallel="auto"))
    assert (chosen.train.parallel.kind, chosen.train.fold, chosen.model_identity) == ("fixed", None, config.model_identity)
    with pytest.raises(ConfigError, match=r"train.parallel.replan is true, but all folds are trained in one layout; set it to false"):
        choose_layout_of_folds(folds_config(folder, settings, parallel={"replan": True}))


def prepare_with_page(config: Config, pages: list[str]) -> Any:
    """The manifest of the version; its page is added to `pages`."""
    from pipelines.etl.run import run

    def page(survey: Any) -> dict[str, str]:
        files = profile_files(survey)
        pages.extend(files.values())
        return files

    return run(config, page)


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_fewer_rows_than_folds_make_no_version(tmp_path: Path) -> None:
    write_table(tmp_path, 6)
    with pytest.raises(SourceError, match=r"dataset\.split\.folds is 12, but no row of 6 is in fold .*; give fewer folds, or more rows"):
        api.prepare(folds_config(tmp_path, {"folds": 12}))
    assert not list((tmp_path / "data").rglob("manifest.json"))
    api.prepare(folds_config(tmp_path, {"folds": 3, "stratify": "label"}))
    write_table(tmp_path / "more", 500)
    api.prepare(folds_config(tmp_path / "more", {"folds": 12}))  # more rows


@pytest.mark.full
@pytest.mark.usefixtures("spark", "ray_cluster")
def test_p5_p6_p8_all_folds_are_trained_in_one_run_which_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path, 200)
    config = folds_config(tmp_path, {"folds": 3, "stratify": "label"}, strategy="exact", workers=2)
    api.prepare(config)
    with pytest.raises(ConfigError, match=r"set train\.fold, as to 1"):
        api.train(config)
    train, trained = cross_validation.train, list[int | None]()

    def train_until_interrupted(config: Config, *arguments: Any) -> Any:
        if config.train.fold == 2 and not trained[1:]:
            trained.append(config.train.fold)
            raise KeyboardInterrupt
        trained.append(config.train.fold)
        return train(config, *arguments)

    monkeypatch.setattr(cross_validation, "train", train_until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        api.cross_validate(config)
    result = api.cross_validate(config)
    assert trained == [1, 2, 2, 3], "the finished fold is not trained again"
    client = MlflowClient(config.tracking.uri)
    parent = client.get_run(result.run_id)
    assert parent.info.status == "FINISHED" and parent.data.metrics == pytest.approx(result.metrics)
    assert "over 3 folds" in parent.data.tags["mlflow.note.content"]
    assert "All 3 trainings are finished." in api.report(config.tracking.uri, result.run_id)
    assert "report.html" in [artifact.path for artifact in client.list_artifacts(result.run_id)]
    assert np.mean([metrics["test/auc"] for metrics in result.fold_metrics.values()]) == pytest.approx(result.metrics["test/auc_mean"])
    runs = {fold: client.get_run(run_id) for fold, run_id in result.fold_runs.items()}
    assert {fold: run.data.tags["mlflow.parentRunId"] for fold, run in runs.items()} == dict.fromkeys((1, 2, 3), result.run_id)
    assert len({run.data.tags["model.digest"] for run in runs.values()}) == 3
    alone = api.train(folds_config(tmp_path, {"folds": 3, "stratify": "label"}, strategy="exact", workers=1, fold=2))
    assert alone.model_digest == runs[2].data.tags["model.digest"], "a model is a function of the dataset, the config and the fold"
    assert alone.metrics == result.fold_metrics[2], "the metrics are those of the best epoch"
    assert api.verify(config, alone.run_id)

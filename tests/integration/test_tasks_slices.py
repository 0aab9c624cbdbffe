"""Every task's shipped pipeline, from real raw data to a served model, on a small slice."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyspark.sql import SparkSession
from slices import load_slice
from tables import read_tables

from pipelines import api
from pipelines.config import Config
from pipelines.data.loader import ROW_NUMBERS, Loader, Order, shard_range
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version
from pipelines.errors import ConfigError
from pipelines.etl.run import run
from pipelines.launch import spark_baseline as baseline
from pipelines.serving.model import Predictor, log_model
from pipelines.serving.model.column_casts import to_arrow
from pipelines.tasks.bind import build_task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.checkpoint.run_directory import RunDirectory
from pipelines.train.loop import Loop
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.strategy import Strategy, create_strategy
from pipelines.train.workers import WorkerContext

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ("trec", "spoken_digits", "movielens", "video_games")
PREDICTED: dict[str, Callable[[pd.DataFrame], np.ndarray]] = {
    "trec": lambda served: served[[f"probability_{number}" for number in range(6)]].to_numpy(),
    "spoken_digits": lambda served: served[[f"probability_{number}" for number in range(10)]].to_numpy(),
    "movielens": lambda served: served[["prediction"]].to_numpy(),
    "video_games": lambda served: np.stack(served["scores"].to_numpy()),
}
"""The numbers of a served prediction, shape (rows, numbers)."""
SLICES = [name if name in ("trec", "movielens") else pytest.param(name, marks=pytest.mark.full) for name in NAMES]


@dataclass(frozen=True)
class Slice:
    config: Config
    manifest: Manifest
    result: Trained
    strategy: Strategy


def fit(config: Config, folder: Path) -> tuple[Trained, Strategy]:
    version = open_version(config.dataset.path, config.data_identity)
    task = build_task(config.task, version.manifest)
    strategy = create_strategy(config.train, task, WorkerContext())
    checkpoints = Checkpoints(RunDirectory(str(folder)), WorkerContext(), config.train.checkpoint.keep)
    return Loop(config, version, task, strategy, checkpoints, Hooks()).run(), strategy


@pytest.fixture(scope="module")
def slice_by_name(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Slice]:
    """By name, made when it is asked for."""

    class LazySlices(dict[str, Slice]):
        def __missing__(self, name: str) -> Slice:
            folder = tmp_path_factory.mktemp(name)
            with pytest.MonkeyPatch.context() as monkeypatch:
                config = load_slice(name, folder, monkeypatch)
            manifest = run(config)
            self[name] = Slice(config, manifest, *fit(config, folder / "checkpoints"))
            return self[name]

    return LazySlices()


@pytest.mark.parametrize("name", SLICES)
def test_a_slice_goes_all_the_way(slice_by_name: dict[str, Slice], name: str) -> None:
    trained_slice = slice_by_name[name]
    assert trained_slice.result.finished
    assert not trained_slice.manifest.quarantined, "no row of the real data is refused"
    assert not trained_slice.manifest.warnings
    task = build_task(trained_slice.config.task, trained_slice.manifest)
    assert np.isfinite(trained_slice.result.metrics[f"test/{task.monitor[0]}"])


@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_p2_every_row_is_in_one_batch(slice_by_name: dict[str, Slice], name: str, world_size: int) -> None:
    config = slice_by_name[name].config
    version = open_version(config.dataset.path, config.data_identity)
    order = Order(8, config.train.global_batch, seed=1, remainder="keep")
    batch_row_numbers = [
        batch[ROW_NUMBERS]
        for rank in range(world_size)
        for batch in Loader(version, "train", order, shard_range(rank, world_size, 8), row_numbers=True)
    ]
    assert torch.equal(torch.cat(batch_row_numbers).sort().values, torch.arange(version.rows("train")))


@pytest.mark.parametrize("name", SLICES)
def test_p7_a_served_model_predicts_from_raw_rows_what_evaluation_does(
    spark: SparkSession, slice_by_name: dict[str, Slice], name: str
) -> None:
    trained_slice = slice_by_name[name]
    client = mlflow.MlflowClient(trained_slice.config.tracking.uri)
    experiment = client.get_experiment_by_name(trained_slice.config.experiment)
    assert experiment
    run_id = client.create_run(experiment.experiment_id).info.run_id
    weights = trained_slice.strategy.model.state_dict()
    model = mlflow.pyfunc.load_model(log_model(trained_slice.config, trained_slice.manifest, weights, run_id))
    served = model.predict(raw_rows(spark, trained_slice).to_pandas())
    assert served["refused"].isna().all()
    numbers = PREDICTED[name]
    assert sort_rows(numbers(served)) == pytest.approx(sort_rows(numbers(evaluate(trained_slice))), abs=1e-5)


def raw_rows(spark: SparkSession, trained_slice: Slice) -> pa.Table:
    """The rows that the model takes: all of the table's, or the query's; of the test split, where the query says which they are."""
    predictor = Predictor(trained_slice.config.task, trained_slice.manifest, trained_slice.strategy.model.state_dict())
    read_tables(spark, trained_slice.config.source)  # another pipeline may have a table of the same name
    query = trained_slice.manifest.served_query
    rows = spark.table(query.table) if query else spark.sql(trained_slice.config.source.sql)
    if "split" in rows.columns:
        rows = rows.where("split = 'test'")
    return to_arrow(rows.select(*predictor.inputs.names).toArrow().to_pandas(), predictor.inputs)


def evaluate(trained_slice: Slice) -> pd.DataFrame:
    """Predictions of those rows as ETL has written them."""
    version = open_version(trained_slice.config.dataset.path, trained_slice.config.data_identity)
    task = build_task(trained_slice.config.task, trained_slice.manifest)
    has_named_splits = "by" in type(trained_slice.config.dataset.split).model_fields and not trained_slice.manifest.served_query
    splits = ("test",) if has_named_splits else ("train", "validation", "test")
    order = Order(1, 256, shuffle=False, remainder="keep")
    outputs = [trained_slice.strategy.predict(batch) for split in splits for batch in Loader(version, split, order)]
    return pd.DataFrame(task.predict(torch.cat(outputs)))


def sort_rows(numbers: np.ndarray) -> np.ndarray:
    return numbers[np.lexsort(numbers.T)].ravel()


def test_a_file_that_is_latin_1_loses_no_row(spark: SparkSession, slice_by_name: dict[str, Slice]) -> None:
    trained_slice = slice_by_name["trec"]
    read_tables(spark, trained_slice.config.source)
    assert spark.sql(trained_slice.config.source.sql).where("question LIKE '%sisterðcity%'").count() == 1
    assert sum(split.rows for split in trained_slice.manifest.splits.values()) == trained_slice.manifest.rows_parsed == 480


@pytest.mark.full
def test_a_linear_baseline_is_logged_beside_the_network(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_slice("adult", tmp_path, monkeypatch)
    manifest = run(config)
    metrics = baseline.fit_baseline(config)
    names = ("auc", "average_precision", "accuracy", "loss")
    assert metrics.keys() == {f"{split}/{name}" for split in ("validation", "test") for name in names}
    assert metrics["test/auc"] > 0.85
    client = mlflow.MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name("adult")
    assert experiment
    (baseline_run,) = client.search_runs([experiment.experiment_id], "tags.`mlflow.lockstep.kind` = 'baseline'")
    assert (baseline_run.info.status, baseline_run.data.metrics) == ("FINISHED", metrics)
    assert baseline_run.data.params["model"] == "LogisticRegression"
    assert baseline_run.data.tags["dataset.digest"] == manifest.digest
    filed = {entry.path for entry in client.list_artifacts(baseline_run.info.run_id)}
    assert filed >= {"report.html", "evaluation", "config.json", "manifest.json"}
    page = api.report(config.tracking.uri, baseline_run.info.run_id)
    assert "LogisticRegression of Spark ML, a baseline" in page and "ROC: area" in page and "Most wrong rows" in page
    assert "random weights" not in page and "no points" not in page
    areas = re.findall(r"ROC: area ([\d.]+)\.<", page)
    assert f"{metrics['test/auc']:.4f}" in areas, "figures are of the rows in their order"


@pytest.mark.full
def test_forests_and_boosting_are_baselines_too(slice_by_name: dict[str, Slice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same rows by the task's metrics: of classes a forest alone, which has a probability for each."""
    config = load_slice("adult", tmp_path, monkeypatch)
    run(config)
    metrics = {model: baseline.fit_baseline(config, model) for model in ("linear", "forest", "boosting")}
    for model in ("forest", "boosting"):
        assert metrics[model]["test/auc"] > metrics["linear"]["test/auc"] - 0.03
        assert metrics[model]["test/loss"] < metrics["linear"]["test/loss"] + 0.05, "its probabilities are those of its trees"
    run_id = (
        mlflow.MlflowClient(config.tracking.uri)
        .search_runs(
            [mlflow.MlflowClient(config.tracking.uri).get_experiment_by_name("adult").experiment_id], "params.model = 'GBTClassifier'"
        )[0]
        .info.run_id
    )
    assert "GBTClassifier of Spark ML, a baseline" in api.report(config.tracking.uri, run_id)
    classes = slice_by_name["trec"].config
    assert baseline.fit_baseline(classes, "forest")["test/accuracy"] > 0.3
    with pytest.raises(ConfigError, match=r"--model is boosting, and Spark's boosting has two classes, but kind has 6; set it to forest"):
        baseline.fit_baseline(classes, "boosting")
    with pytest.raises(ConfigError, match=r"--model is 'tree'; it must be one of linear, forest, boosting"):
        baseline.fit_baseline(classes, "tree")


@pytest.mark.full
def test_a_ranking_has_no_linear_baseline(slice_by_name: dict[str, Slice]) -> None:
    with pytest.raises(ConfigError, match=r"task.kind is next_item, which has no baseline"):
        baseline.fit_baseline(slice_by_name["video_games"].config)


@pytest.mark.full
def test_words_and_classes_have_a_linear_baseline(slice_by_name: dict[str, Slice]) -> None:
    metrics = baseline.fit_baseline(slice_by_name["trec"].config)
    assert metrics["test/accuracy"] > 0.4

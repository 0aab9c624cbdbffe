"""Numbers that are missing and kept so: from a CSV with empty cells to trees with a side for them, through every door, to the page."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from sklearn.metrics import roc_auc_score
from slices import train_and_log
from stores import new_store
from test_export import predict_alone

from pipelines import api
from pipelines.config import Config, parse
from pipelines.data.loader.reader import Reader
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version
from pipelines.errors import ConfigError
from pipelines.launch.spark_baseline import fit_baseline
from pipelines.report.evaluation import add_raw_rows, pack, read_splits, unpack
from pipelines.report.figures.svg_figures import draw_figures
from pipelines.report.page_parts import worst_tables
from pipelines.serving.export.export_folder import export
from pipelines.serving.http.served_model import ServedModel
from pipelines.serving.model import Predictor
from pipelines.tasks.details import EvaluationData
from pipelines.train.passes import one_thread
from pipelines.train.run_context import Hooks
from pipelines.train.strategy import Strategy

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = 3_000


class Keeps(Hooks):
    def __init__(self) -> None:
        self.evaluations: dict[str, EvaluationData] = {}

    def keep_evaluation(self, evaluation: EvaluationData) -> None:
        self.evaluations[evaluation.split] = evaluation


def write_rows(folder: Path) -> pd.DataFrame:
    """Whoever is rich often hides the income, so that a missing number tells something."""
    draw = np.random.default_rng(0)
    income, age, job = draw.lognormal(size=ROWS), draw.integers(18, 80, ROWS), draw.choice(["cook", "smith", ""], ROWS)
    is_rich = income + draw.normal(0, 0.5, ROWS) + (job == "smith") > 2
    hidden = draw.random(ROWS) < np.where(is_rich, 0.8, 0.1)
    rows = pd.DataFrame({"id": np.arange(ROWS), "income": income, "age": age, "job": job, "rich": is_rich})
    rows.loc[hidden, "income"] = None
    rows["age"] = rows["age"].astype("Int64").mask(draw.random(ROWS) < 0.2)
    folder.mkdir()
    rows.to_csv(folder / "rows.csv", index=False)
    return rows


def make_config(folder: Path, impute: str = "keep", kind: str = "trees") -> Config:
    number = {"impute": impute}
    train = {"strategy": {"kind": "boosting", "rounds_per_epoch": 10}} if kind == "trees" else {}
    values = {
        "name": "hidden",
        "source": {
            "tables": {"rows": {"format": "csv", "path": str(folder / "raw"),
                                "schema": "id int, income double, age int, job string, rich boolean", "options": {"header": True}}},
            "query": "SELECT *, age * 2 AS twice FROM rows",
        },
        "dataset": {
            "path": str(folder / f"data-{impute}"),
            "key": ["id"],
            "features": {
                "income": {"encoder": "standardize", **number},
                "age": {"encoder": "identity", **number},
                "age_by_rank": {"encoder": "normal_quantile", "column": "age", **number},
                "twice": {"encoder": "log1p", **number},
                "job": "vocabulary",
            },
            "target": {"rich": "binary"},
        },
        "task": {"kind": kind, **({"learning_rate": 0.1} if kind == "trees" else {})},
        "train": {"workers": 1, "shards": 2, "epochs": 4, "storage": str(folder / "runs"), **train},
        "tracking": {"uri": new_store(folder)},
        "export": {"path": str(folder / "exports")},
    }  # fmt: skip
    return parse(values, "hidden")


@dataclass(frozen=True)
class LoggedModel:
    """Trees that are trained on the rows, and what they predict of them."""

    rows: pd.DataFrame
    config: Config
    manifest: Manifest
    strategy: Strategy
    evaluations: dict[str, EvaluationData]
    run_id: str
    uri: str
    predictions: pd.DataFrame


@pytest.fixture(scope="module")
def model(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LoggedModel:
    folder = tmp_path_factory.mktemp("missing")
    rows, config, hooks = write_rows(folder / "raw"), make_config(folder), Keeps()
    with one_thread():
        manifest, _, strategy, run_id, uri = train_and_log(config, folder, hooks)
        predictions = mlflow.pyfunc.load_model(uri).predict(rows.drop(columns="rich"))
    return LoggedModel(rows, config, manifest, strategy, hooks.evaluations, run_id, uri, predictions)


def json_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON has them, null for what is missing."""
    return [{name: None if pd.isna(value) else value for name, value in row.items()} for _, row in rows.astype(object).iterrows()]


def test_missing_numbers_stay_so_in_the_dataset(model: LoggedModel) -> None:
    assert not model.manifest.quarantined
    columns = {name for name, fitted in model.manifest.encoders.items() if fitted.column.missing}
    assert columns == {"income", "age", "age_by_rank", "twice"}
    encoded = Reader(open_version(model.config.dataset.path, model.config.data_identity), "train").read(0)
    assert 0.2 < np.isnan(encoded["income"]).mean() < 0.7 and (np.isnan(encoded["age"]) == np.isnan(encoded["twice"])).all()


def test_p7_they_reach_trees_and_are_predicted_alike_through_every_door(model: LoggedModel, tmp_path: Path) -> None:
    expected = model.predictions["probability_true"]
    assert model.predictions["refused"].isna().all()
    assert roc_auc_score(model.rows["rich"], expected) > 0.9
    (raw,) = (table.path for table in model.config.source.tables.values())
    api.predict(model.config, model.uri, str(tmp_path / "out"), [str(raw)], keep=["id"])
    by_spark = api.open_predictions(str(tmp_path / "out")).to_table().to_pandas().set_index("id").sort_index()
    np.testing.assert_allclose(by_spark["probability_true"], expected, rtol=1e-6)

    rows = json_rows(model.rows.drop(columns="rich").head(300))
    served = ServedModel(Predictor(model.config.task, model.manifest, model.strategy.weights()), "1", "ab" * 32, rows[0])
    (answers,) = served.answers([rows])
    np.testing.assert_allclose([answer["probability_true"] for answer in answers], expected.head(300), rtol=1e-6)


@pytest.mark.full
def test_p7_an_exported_graph_predicts_them_alike(model: LoggedModel) -> None:
    rows = json_rows(model.rows.drop(columns="rich").head(300))
    folder = export(model.config, model.run_id, "onnx")
    assert max(row["max_difference"] for row in json.loads((folder / "parity.json").read_text())["rows"]) < 1e-4
    queried = [{**row, "twice": row["age"] and 2 * row["age"]} for row in rows]
    ended = predict_alone(folder, stdin="\n".join(map(json.dumps, queried)))
    assert ended.returncode == 0, ended.stderr
    by_script = [json.loads(line)["probability_true"] for line in ended.stdout.splitlines()]
    np.testing.assert_allclose(by_script, model.predictions["probability_true"].head(300), atol=1e-6)


def test_models_of_spark_ml_refuse_them(model: LoggedModel) -> None:
    with pytest.raises(ConfigError, match=r"features\.income keeps missing numbers, which models of Spark ML .* set its impute to median"):
        fit_baseline(model.config)


def test_the_page_names_the_features_that_moved_a_prediction(model: LoggedModel, tmp_path: Path) -> None:
    evaluation, version = model.evaluations["test"], open_version(model.config.dataset.path, model.config.data_identity)
    assert set(evaluation.tables["importance"]["feature"]) == {"income", "age", "twice", "job"}
    assert "importance" not in model.evaluations["validation"].tables
    unpack(pack(evaluation.summary, evaluation.tables), tmp_path / "evaluation" / "test")
    add_raw_rows(tmp_path / "evaluation", version)
    splits = read_splits(tmp_path / "evaluation")
    (figure,) = [figure for figure in draw_figures(splits[0]) if figure.name == "importance"]
    assert b"income" in figure.svg and "each feature" in figure.caption, figure.caption
    (table,) = worst_tables(splits, ("id",))
    causes = [row[table.header.index("moved by")] for row in table.rows]
    assert len(causes) == 24 and any("income missing (" in str(cause) for cause in causes), causes
    assert all(str(cause).count("(") == 4 for cause in causes), "one for each raw feature"


def test_a_network_takes_no_missing_numbers(tmp_path: Path) -> None:
    message = (
        r"features\.income: impute is keep, but task\.kind tabular takes no missing numbers; set impute to median, or task\.kind to trees"
    )
    with pytest.raises(ConfigError, match=message):
        make_config(tmp_path, kind="tabular")
    make_config(tmp_path, impute="median", kind="tabular")

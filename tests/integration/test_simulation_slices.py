"""From an equation to a surrogate: Spark simulates rows, the same in any number of tasks; an operator learns, is served and exported."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from slices import train_and_log
from stores import new_store
from tables import raw_table

from pipelines.api import open_predictions
from pipelines.applications.science import simulation
from pipelines.config import Config, load
from pipelines.data.loader import Loader, Order
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version
from pipelines.errors import SourceError
from pipelines.etl.run import run
from pipelines.serving.batch.predict_tables import predict_tables
from pipelines.serving.export.export_folder import export
from pipelines.serving.model import load_model
from pipelines.tasks.bind import build_task
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.strategy import Strategy

pytestmark = pytest.mark.usefixtures("one_thread")

CONF = Path(__file__).parents[2] / "conf/burgers.yaml"
POINTS = 32
SMALL = {
    "source.tables.burgers.parameters": {"points": POINTS, "viscosity": 0.02, "steps": 64},
    "source.tables.burgers.seeds": 120,
    "source.query": "SELECT *, initial[0] AS initial_value, final[0] AS final_value, "
    "CASE WHEN seed >= 110 THEN 'test' WHEN seed >= 100 THEN 'validation' ELSE 'train' END AS split FROM burgers",
    "dataset.features.initial.shape": [POINTS],
    "dataset.target.final.shape": [POINTS],
    "task.modes": 8,
    "task.width": 16,
    "task.layers": 2,
    "train.workers": 1,
    "train.shards": 2,
    "train.global_batch": 10,
    "train.epochs": 15,
    "train.lr": 1e-2,
}


@dataclass(frozen=True)
class Slice:
    config: Config
    manifest: Manifest
    result: Trained
    strategy: Strategy
    run_id: str
    model: str
    hooks: "LoggingHooks"


class LoggingHooks(Hooks):
    def __init__(self) -> None:
        self.logged: dict[str, Any] = {}

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.logged |= metrics


def small_config(folder: Path, **flags: Any) -> Config:
    places = {"dataset.path": str(folder / "data"), "tracking.uri": new_store(folder), "train.storage": str(folder / "runs")}
    return load(CONF, {**places, "export.path": str(folder / "exports"), **SMALL, **flags})


@pytest.fixture(scope="module")
def trained_slice(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Slice:
    folder = tmp_path_factory.mktemp("burgers")
    config = small_config(folder)
    hooks = LoggingHooks()
    manifest, result, strategy, run_id, model = train_and_log(config, folder, hooks)
    return Slice(config, manifest, result, strategy, run_id, model, hooks)


def test_any_number_of_tasks_makes_the_same_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "format": "simulation",
        "function": "pipelines.applications.science.burgers:simulate",
        "schema": "initial array<double>, final array<double>",
        "seeds": 7,
        "parameters": {"points": 64, "steps": 32},
    }
    rows = []
    for tasks_per_core in (1, 100):
        monkeypatch.setattr(simulation, "_TASKS_PER_CORE", tasks_per_core)
        frame = raw_table(settings).rows(spark).rows
        assert frame.rdd.getNumPartitions() == min(7, tasks_per_core * spark.sparkContext.defaultParallelism)
        rows.append({row["seed"]: (np.array(row["initial"]).tobytes(), np.array(row["final"]).tobytes()) for row in frame.collect()})
    assert rows[0] == rows[1] and sorted(rows[0]) == list(range(7))


@pytest.mark.full
def test_a_second_dataset_of_the_same_equation_has_the_same_digest(trained_slice: Slice, tmp_path: Path) -> None:
    manifest = run(small_config(tmp_path))
    assert (manifest.version, manifest.digest) == (trained_slice.manifest.version, trained_slice.manifest.digest)
    assert manifest.rows_parsed == 120 and manifest.quarantined == {}


def test_the_operator_beats_the_trivial_predictors_by_far(trained_slice: Slice) -> None:
    metrics = trained_slice.result.metrics
    assert float(metrics["test/relative_l2"]) < 0.2
    baseline = trained_slice.hooks.logged
    assert min(baseline["baseline/test/relative_l2"], baseline["baseline/validation/relative_l2"]) > 0.5


def test_the_served_model_takes_raw_arrays_and_answers_with_raw_arrays(trained_slice: Slice) -> None:
    version = open_version(trained_slice.config.dataset.path, trained_slice.config.data_identity)
    task = build_task(trained_slice.config.task, version.manifest)
    (batch,) = Loader(version, "test", Order(1, 64, shuffle=False, remainder="keep"))
    evaluated = np.array(task.predict(trained_slice.strategy.predict(batch))["prediction"])
    raw = task.data.raw("initial", batch["initial"].numpy())
    model = load_model(trained_slice.config.tracking.uri, trained_slice.model)
    served = model.predict(pd.DataFrame({"initial": [*raw.tolist(), [0.0] * (POINTS - 1), [float("nan")] * POINTS]}))
    predicted = np.array(served["prediction"][: len(raw)].tolist())
    np.testing.assert_allclose(predicted, evaluated, rtol=0, atol=1e-6)
    assert predicted.shape == (len(raw), POINTS)
    refused = served["refused"][len(raw) :].tolist()
    assert [reason[:40] for reason in refused] == ["initial: scale cannot encode [0.0, 0.0, ", "initial: scale cannot encode [None, None"]


@pytest.mark.full
def test_batch_prediction_simulates_other_seeds(trained_slice: Slice, tmp_path: Path) -> None:
    table = trained_slice.config.source.tables["burgers"].model_copy(update={"first_seed": 5_000, "seeds": 3})
    source = trained_slice.config.source.model_copy(update={"tables": {"burgers": table}})
    config = trained_slice.config.model_copy(update={"source": source})
    written = predict_tables(config, trained_slice.model, [], str(tmp_path / "out"), ["seed", "final"])
    rows = open_predictions(str(tmp_path / "out")).to_table().sort_by("seed")
    assert written.rows_out == 3 and rows["seed"].to_pylist() == [5_000, 5_001, 5_002]
    predicted, true = (np.array(rows[name].to_pylist()) for name in ("prediction", "final"))
    assert (np.linalg.norm(predicted - true, axis=1) < 0.3 * np.linalg.norm(true, axis=1)).all()


@pytest.mark.full
def test_an_export_is_the_same_operator(trained_slice: Slice) -> None:
    folder = export(trained_slice.config, trained_slice.run_id, "onnx")
    report = {row["model"]: row for row in json.loads((folder / "parity.json").read_text())["rows"]}
    assert report["onnx"]["rows"] == trained_slice.manifest.splits["test"].rows and report["onnx"]["max_difference"] < 1e-4
    assert report["onnx"]["relative_l2"] == pytest.approx(report["mlflow"]["relative_l2"], abs=1e-5)
    assert (folder / "predict.py").exists()
    examples = json.loads((folder / "examples.json").read_text())
    assert np.array(examples["predictions"][0]["prediction"]).shape == (POINTS,)


FAULTY = """
import numpy as np

def simulate(seed):
    field = np.random.default_rng(seed).standard_normal(8)
    final = {3: field * np.nan, 4: field[:5], 5: 0 * field}.get(seed, field / 2)
    return {"initial": field, "final": final}

def fail(seed):
    if seed == 11:
        raise ValueError("the solver diverged")
    return simulate(seed)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A simulator in a folder that Python finds."""
    (tmp_path / "faulty_simulator.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "faulty_simulator"


def faulty_config(folder: Path, function: str) -> Config:
    shape = {"dataset.features.initial.shape": [8], "dataset.target.final.shape": [8], "task.modes": 4}
    query = {"source.query": SMALL["source.query"].replace("110", "90").replace("100", "70"), "source.max_quarantined": 0.5}
    function_flags = {"source.tables.burgers.function": function, "source.tables.burgers.parameters": {}}
    return small_config(folder, **shape, **query, **function_flags)


def test_faulty_rows_are_quarantined_with_their_reason(module: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.sparkContext.addPyFile(str(tmp_path / f"{module}.py"))
    manifest = run(faulty_config(tmp_path, f"{module}:simulate"))
    assert manifest.quarantined == {"final: scale cannot encode a value": 2, "not zero": 1}


@pytest.mark.full
def test_a_simulator_that_raises_is_one_error_with_the_seed(module: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.sparkContext.addPyFile(str(tmp_path / f"{module}.py"))
    with pytest.raises(SourceError, match=r"source\.tables\.burgers: .*:fail raised ValueError: the solver diverged, for seed 11; correct"):
        run(faulty_config(tmp_path, f"{module}:fail"))

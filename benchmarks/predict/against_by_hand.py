"""Measures jobs/predict.py against a hand-written pandas_udf and MLflow's spark_udf with the same model: on the same cores, in one session.

    python -m benchmarks.predict.against_by_hand [--rows 5000000] [--repeats 2] [--cores 2] [--small] [--folder FOLDER] [--results FOLDER]

Rows have the columns of conf/adult.yaml, in Parquet; the model is that of the config with weights that were not trained. All read the
same files, keep the column fnlwgt beside prediction and probabilities, and write Parquet. Ours also computes checksums of the input,
verifies the model, commits atomically, keeps refused rows with reasons, and starts a process for each Python worker.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from mlflow import MlflowClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.config import Config
from pipelines.data.versions.versions import open_version
from pipelines.serving.model import log_model
from pipelines.spark.session import session
from pipelines.tasks.bind import build_task

FOLDER = Path(tempfile.gettempdir()) / "lockstep-benchmark-predict"
CONFIG = Path(__file__).parents[2] / "conf/adult.yaml"
TEXTS = {
    "workclass": 8, "education": 16, "marital_status": 7, "occupation": 14, "relationship": 6, "race": 5, "sex": 2, "native_country": 41,
}  # fmt: skip
COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race", "sex",
    "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
)  # fmt: skip
ROWS_PER_FILE = 500_000
KEPT = "fnlwgt"
OUTPUTS = "prediction string, probability_false double, probability_true double"


def random_rows(random: np.random.Generator, rows: int) -> pa.Table:
    sparse = {name: np.where(random.random(rows) < share, random.integers(1, 9_999, rows), 0) for name, share in
              {"capital_gain": 0.08, "capital_loss": 0.05}.items()}  # fmt: skip
    integers = {
        "age": random.integers(17, 91, rows), "fnlwgt": random.integers(12_000, 1_500_000, rows),
        "education_num": random.integers(1, 17, rows), "hours_per_week": random.integers(1, 100, rows), **sparse,
    }  # fmt: skip
    columns = {name: pa.array(values, pa.int32()) for name, values in integers.items()}
    for name, distinct in TEXTS.items():
        columns[name] = pa.array([f"{name} {number}" for number in range(distinct)]).take(pa.array(random.integers(0, distinct, rows)))
    columns["income"] = pa.array(["<=50K", ">50K"]).take(pa.array(random.integers(0, 2, rows)))
    return pa.table({name: columns[name] for name in COLUMNS})


def generate(folder: Path, rows: int) -> Path:
    """Write the rows, unless they are there; they depend only on the arguments. Returns their folder."""
    path = folder / f"raw-{rows}"
    if not path.exists():
        draft = folder / f"{path.name}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for number, start in enumerate(range(0, rows, ROWS_PER_FILE)):
            table = random_rows(np.random.default_rng(number), min(ROWS_PER_FILE, rows - start))
            pq.write_table(table, draft / f"{number:05}.parquet", row_group_size=125_000)
        draft.rename(path)
    return path


def log_untrained_model(folder: Path) -> tuple[Config, str]:
    """The pipeline, and the URI of a model of it with weights that were not trained."""
    names = ("train", "test")
    for number, name in enumerate(names):
        pa.csv.write_csv(
            random_rows(np.random.default_rng(100 + number), 10_000), folder / f"{name}.csv", pa.csv.WriteOptions(include_header=False)
        )
    paths = {f"source.tables.{name}.path": str(folder / f"{name}.csv") for name in names}
    store = {"tracking.uri": f"sqlite:///{folder}/mlflow.db", "dataset.path": str(folder / "data")}
    config = api.read_config(CONFIG, {**paths, **store})
    api.prepare(config)
    manifest = open_version(config.dataset.path, config.data_identity).manifest
    torch.manual_seed(0)
    weights = build_task(config.task, manifest).model().state_dict()
    client = MlflowClient(config.tracking.uri)
    experiment = client.create_experiment("predict", artifact_location=f"{folder}/artifacts")
    return config, log_model(config, manifest, weights, client.create_run(experiment).info.run_id)


def pandas_udf_job(model: str) -> Callable[[DataFrame], DataFrame]:
    """A pandas_udf that loads the model once per task, as an expert would write it."""

    @F.pandas_udf(OUTPUTS)  # type: ignore[call-overload, untyped-decorator]
    def predict(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        loaded = mlflow.pyfunc.load_model(model)
        for batch in batches:
            yield loaded.predict(batch)[["prediction", "probability_false", "probability_true"]]

    return lambda rows: rows.select(KEPT, predict(F.struct(*input_names(model))).alias("found")).select(KEPT, "found.*")


def spark_udf_job(spark: SparkSession, model: str) -> Callable[[DataFrame], DataFrame]:
    udf = mlflow.pyfunc.spark_udf(spark, model, result_type=OUTPUTS, env_manager="local")
    return lambda rows: rows.select(KEPT, udf(F.struct(*input_names(model))).alias("found")).select(KEPT, "found.*")


def input_names(model: str) -> list[str]:
    return [column.name for column in mlflow.models.get_model_info(model).signature.inputs]


def measure(config: Config, model: str, raw: Path, folder: Path, repeats: int) -> dict[str, list[float]]:
    """Seconds of each job, run alternately."""
    mlflow.set_tracking_uri(config.tracking.uri)
    spark = session("benchmark")
    local = mlflow.artifacts.download_artifacts(model, dst_path=str(folder / "model"))
    table = config.source.tables["train"].model_copy(update={"format": "parquet", "ddl": "", "options": {}})
    config = config.model_copy(update={"source": config.source.model_copy(update={"tables": {**config.source.tables, "train": table}})})
    peers = {"by hand": pandas_udf_job(local), "spark_udf of MLflow": spark_udf_job(spark, local)}
    seconds: dict[str, list[float]] = {"by hand": [], "ours": [], "spark_udf of MLflow": []}
    for _ in range(repeats):
        for name, durations in seconds.items():
            output = folder / "output"
            shutil.rmtree(output, ignore_errors=True)
            start = time.perf_counter()
            if name == "ours":
                api.predict(config, model, str(output), [str(raw)], [KEPT])
            else:
                peers[name](spark.read.parquet(str(raw))).write.parquet(str(output))
            durations.append(time.perf_counter() - start)
            print(f"{name}: {durations[-1]:.1f} s", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    add_options(parser, FOLDER)
    parser.add_argument("--small", action="store_true", help="few rows, to test that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(arguments.cores, "4g")
    rows, repeats = (20_000, 1) if arguments.small else (arguments.rows, arguments.repeats)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        folder = Path(place)
        config, model = log_untrained_model(folder)
        seconds = measure(config, model, generate(arguments.folder, rows), folder, repeats)
    best = {name: statistics.median(durations) for name, durations in seconds.items()}
    table: list[Row] = [
        {
            "job": name,
            "seconds": best[name],
            "least": min(durations),
            "rows/s": int(rows / best[name]),
            "ratio": best["by hand"] / best[name],
        }
        for name, durations in seconds.items()
    ]
    title = f"Prediction of {rows:,} rows of adult's columns, median of {repeats}"
    show(title, table)
    print(save("predict", {title: table}, package_versions("pyspark", "pyarrow", "mlflow", "torch"), arguments.results))


if __name__ == "__main__":
    main()

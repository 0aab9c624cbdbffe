"""Computes test metrics from the output of jobs/predict.py, and compares them with those that a training logged in MLflow.

    python -m benchmarks.predict.same_metrics conf/adult.yaml --model models:/m-… --truth "starts_with(income, '>50K')"
                             --input test=data/raw/adult/adult-test.csv --keep income --output FOLDER [--results FOLDER]

`--truth` is the class of a row, as DuckDB's SQL over the kept columns. Metrics are computed by
`pipelines.serving.registry.champion_comparison`, not by those of the training; the accuracy is that of the column `prediction`, which
need not hold the most probable class.
"""

import argparse
from pathlib import Path

import duckdb
import mlflow
import numpy as np

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.serving.registry.champion_comparison import class_metric


def read_rows(output: str, truth: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number of the class of each row and that of its prediction, both of shape (rows,), and its predicted probabilities, shape
    (rows, classes)."""
    predicted = api.open_predictions(output).to_table()
    names = [name for name in predicted.column_names if name.startswith("probability_")]
    classes = [name.removeprefix("probability_") for name in names]
    (true,) = duckdb.sql(f"SELECT CAST(({truth}) AS VARCHAR) FROM predicted").fetchnumpy().values()
    of_classes, of_predictions = (
        np.array([classes.index(value) for value in values]) for values in (true, predicted["prediction"].to_pylist())
    )
    return of_classes, of_predictions, np.stack([predicted[name].to_numpy() for name in names], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--model", required=True)
    parser.add_argument("--truth", required=True)
    parser.add_argument("--input", nargs="*", default=[])
    parser.add_argument("--keep", nargs="*", default=[])
    parser.add_argument("--output", required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    config = api.read_config(arguments.config)
    api.predict(config, arguments.model, arguments.output, arguments.input, arguments.keep)
    truth, predictions, probabilities = read_rows(arguments.output, arguments.truth)
    ones = np.ones(len(truth))
    computed = {name: class_metric(name, truth, probabilities)(ones) for name in ("auc", "loss")}
    computed["accuracy"] = float(np.mean(predictions == truth))
    client = mlflow.MlflowClient(config.tracking.uri)
    run = client.get_run(client.get_logged_model(arguments.model.removeprefix("models:/")).source_run_id)
    table: list[Row] = []
    for name, value in computed.items():
        if (logged := run.data.metrics.get(f"test/{name}")) is not None:
            row: Row = {"metric": name, "rows": len(truth), "MLflow": f"{logged:.6f}", "predict.py": f"{value:.6f}"}
            table.append({**row, "printed digits equal": str(f"{logged:.4f}" == f"{value:.4f}"), "difference": abs(value - logged)})
    title = f"Test metrics of {config.name}"
    show(title, table)
    print(save(f"predict-metrics-{config.name}", {title: table}, package_versions("pyspark", "torch", "mlflow"), arguments.results))


if __name__ == "__main__":
    main()

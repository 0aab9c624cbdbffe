"""How far an export's `predict.py` and the model in MLflow differ on raw test rows, for the newest model of each pipeline.

    python -m benchmarks.export.alone [--only adult mnist] [--rows 20000]

Train the pipelines first. Spark reads the rows from their sources. The script runs in a process that can import nothing of Lockstep but
the folder's code, and neither pydantic nor torch.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from mlflow import MlflowClient

from benchmarks.report import Row, package_versions, save, show
from pipelines import api, tracking
from pipelines.config import Config
from pipelines.errors import LockstepError
from pipelines.serving.export.examples import example_predictions
from pipelines.serving.export.predict_program import rows_to_json
from pipelines.serving.export.subject import read_subject
from pipelines.serving.registry.gates import test_rows
from pipelines.spark.session import session

CONF = Path(__file__).parents[2] / "conf"
ALONE = """
import runpy, sys
for name in ("pydantic", "torch", "mlflow", "pyspark", "yaml", "ray"):
    sys.modules[name] = None
sys.argv = [sys.argv[1] + "/predict.py", sys.argv[2]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def main() -> None:
    parser = argparse.ArgumentParser("benchmarks.export.alone", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=sorted(path.stem for path in CONF.glob("*.yaml")))
    parser.add_argument("--rows", type=int, default=20_000, help="of the test split, at most")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.only:
        try:
            rows.append({"pipeline": name, **compare(api.read_config(CONF / f"{name}.yaml"), arguments.rows)})
        except LockstepError as error:
            print(f"{name}: {error}", flush=True)
    show("difference of predict.py from the model in MLflow, on raw test rows", rows)
    print(f"\nsaved {save('export-alone', {'alone': rows}, package_versions('torch', 'onnx', 'onnxruntime', 'numpy'))}")


def compare(config: Config, limit: int) -> Row:
    """The script's predictions beside those of the model in MLflow. Raises LockstepError if there is no model, or no test row."""
    client = MlflowClient(config.tracking.uri)
    run = str(client.get_logged_model(tracking.newest_model(config).removeprefix("models:/")).source_run_id)
    folder, subject = api.export(config, run, "onnx"), read_subject(config, run)
    spark = session("export-alone")
    table, _ = test_rows(spark, config, subject.manifest, limit)
    table = table.select(subject.raw_schema.names).cast(subject.raw_schema)
    expected = example_predictions(subject, table)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows_to_json(table))
        file.flush()
        start = perf_counter()
        ended = subprocess.run([sys.executable, "-I", "-c", ALONE, str(folder), file.name], capture_output=True, text=True, check=True)
        seconds = perf_counter() - start
    predictions = [json.loads(line) for line in ended.stdout.splitlines()]
    pairs = list(zip(predictions, expected, strict=True))
    decisions = [
        (prediction.get("prediction"), other.get("prediction"))
        for prediction, other in pairs
        if not isinstance(other.get("prediction"), (float, list))
    ]
    return {
        "rows": len(pairs),
        "refused": sum(row["refused"] is not None for row in expected),
        "equal_refusals": sum(prediction["refused"] == other["refused"] for prediction, other in pairs) / len(pairs),
        "equal_decisions": sum(prediction == other for prediction, other in decisions) / len(decisions) if decisions else None,
        "max_difference": max(difference(prediction, other) for prediction, other in pairs),
        "rows_per_second": len(pairs) / seconds,
    }


def difference(value: Any, expected: Any) -> float:
    """The largest one of two numbers at the same place, relative for numbers beyond 1."""
    if isinstance(expected, dict):
        return max((difference(value[name], expected[name]) for name in expected), default=0.0)
    if isinstance(expected, list):
        return max((difference(item, other) for item, other in zip(value, expected, strict=True)), default=0.0)
    return float(np.abs(value - expected) / max(abs(expected), 1.0)) if isinstance(expected, float) else 0.0


if __name__ == "__main__":
    main()

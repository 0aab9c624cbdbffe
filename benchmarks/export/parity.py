"""How far the newest model of each pipeline and its exports differ, on every test row.

    python -m benchmarks.export.parity [--only adult mnist] [--to onnx onnx-int8]

Train the pipelines first. The models that are compared are those of LOCKSTEP_HOME's MLflow, whatever they were trained with.
"""

import argparse
import json
from pathlib import Path

from mlflow import MlflowClient

from benchmarks.report import Row, package_versions, save, show
from pipelines import api, tracking
from pipelines.errors import LockstepError

CONF = Path(__file__).parents[2] / "conf"


def main() -> None:
    parser = argparse.ArgumentParser("benchmarks.export.parity", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=sorted(path.stem for path in CONF.glob("*.yaml")))
    parser.add_argument("--to", nargs="+", default=["onnx", "onnx-int8"])
    options = parser.parse_args()
    rows = [row for name in options.only for target in options.to for row in compare(name, target)]
    show("difference from the model in MLflow, over the test split", rows)
    print(f"\nsaved {save('export-parity', {'parity': rows}, package_versions('torch', 'onnx', 'onnxruntime'))}")


def compare(name: str, target: str) -> list[Row]:
    """The rows of the report of one export; none, and a line, if there is no model or the target cannot express it."""
    try:
        config = api.read_config(CONF / f"{name}.yaml")
        client = MlflowClient(config.tracking.uri)
        run = client.get_logged_model(tracking.newest_model(config).removeprefix("models:/")).source_run_id
        report = json.loads((api.export(config, str(run), target) / "parity.json").read_text())["rows"]
    except LockstepError as error:
        print(f"{name} {target}: {error}")
        return []
    return [{"pipeline": name, **{key: value for key, value in row.items() if key != "first_differing"}} for row in report]


if __name__ == "__main__":
    main()

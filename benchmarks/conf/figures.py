"""Reproduces every figure of docs/reference/pipelines.md with the README's commands: ETL, training, and the metric in MLflow.

    python -m benchmarks.conf.figures [--only trec movielens] [--results FOLDER]

Raw data are read from LOCKSTEP_RAW, by default ../shared/data beside this repository. A pipeline whose data are not there is
skipped with a message. Datasets, runs and mlflow.db are written to LOCKSTEP_HOME, each run into the experiment of its pipeline.

Each row is saved in <results>/figures.json, with its date, as soon as it is measured. Exits with 1 if a target is missed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run

from benchmarks.report import RESULTS, Row, machine, show
from pipelines.config import Config, from_command_line
from pipelines.config.dataset.dataset import FoldSplit
from pipelines.config.paths import home
from pipelines.runtime import atomic
from pipelines.tracking.cross_validation_run import CROSS_VALIDATION
from pipelines.tracking.parent_run import PARENT
from pipelines.tracking.tracked_run import KIND

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Figure:
    config: str
    metric: str
    target: float

    highest: bool = True
    """Whether more is better."""
    minutes: float = 5
    """The target for the time of the training, on two cores."""
    flags: tuple[str, ...] = ()
    baseline: bool = False
    """Whether the model must also beat a linear model, which is fitted for comparison."""

    @property
    def name(self) -> str:
        pairs = zip(self.flags[::2], self.flags[1::2], strict=True)
        return " ".join([self.config, *(value for flag, value in pairs if "task" in flag and value != "[]")])


FIGURES = (
    Figure("digits", "test/accuracy", 0.97),
    Figure("digits_servers", "test/accuracy", 0.965),
    Figure("mnist", "test/accuracy", 0.992, minutes=6),
    Figure("mnist_federated", "validation/accuracy", 0.99, minutes=25),
    Figure("adult", "test/auc", 0.929, baseline=True),
    Figure("adult_trees", "test/auc", 0.928, baseline=True),
    Figure("california", "test/rmse", 40_500, highest=False),
    Figure("california_trees", "test/rmse_mean", 42_000, highest=False, minutes=30),
    Figure("linear", "test/mse", 0.0102, highest=False),
    Figure("trec", "test/accuracy", 0.905),
    Figure("mr", "test/accuracy", 0.775),
    Figure("sst2", "test/accuracy", 0.83),
    Figure("movielens", "test/rmse", 0.91, highest=False),
    Figure(
        "movielens",
        "test/rmse",
        0.93,
        highest=False,
        flags=("--task.network", "dlrm", "--task.user", "[]", "--task.item", "[]", "--task.dropout", "0.5", "--train.epochs", "6"),
    ),
    Figure("video_games", "test/hit_rate_10", 0.70, minutes=15),
    Figure("video_games", "test/ndcg_10", 0.50, minutes=15),
    Figure("spoken_digits", "test/accuracy", 0.98),
    Figure("membrane", "test/pixel_accuracy", 0.92, minutes=15),
    Figure("membrane", "test/dice", 0.78, minutes=15),
    Figure("hippocampus", "test/dice", 0.85, minutes=15),
    Figure("burgers", "test/relative_l2", 0.005, highest=False),
    Figure("blood_cells", "test/map_50", 0.87, minutes=15),
    Figure("shakespeare", "validation/nats_per_token", 1.52, highest=False, minutes=10),
    Figure("etth1", "test/mse", 0.370, highest=False, minutes=3),
)


def main() -> None:
    names = list(dict.fromkeys(figure.config for figure in FIGURES))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="CONFIG", help=f"of {', '.join(names)}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    os.environ.setdefault("LOCKSTEP_RAW", str(ROOT.parent / "shared" / "data"))
    os.environ.setdefault("LOCKSTEP_HOME", str(ROOT))
    chosen = [figure for figure in FIGURES if figure.config in arguments.only and is_there(figure)]
    rows: list[Row] = []
    metrics: dict[tuple[str, ...], dict[str, float]] = {}
    for figure in chosen:
        pipeline = (f"conf/{figure.config}.yaml", *figure.flags)
        if pipeline not in metrics:
            metrics[pipeline] = measure_pipeline(figure, pipeline)
        rows.append(make_row(figure, metrics[pipeline]))
        save_row(rows[-1], arguments.results / "figures.json")
    show("figures, on the published test splits unless said otherwise", rows)
    sys.exit(any(row["reached it"] == "NO" for row in rows))


def is_there(figure: Figure) -> bool:
    """Whether the pipeline and its raw data exist."""
    path = ROOT / f"conf/{figure.config}.yaml"
    missing = [str(path)] if not path.exists() else [name for name in raw_paths(path) if not Path(name).exists()]
    if missing:
        print(f"skipping {figure.config}: {', '.join(missing)} does not exist", file=sys.stderr)
    return not missing


def raw_paths(conf: Path) -> list[str]:
    """Paths of the pipeline's raw files on this machine."""
    tables = from_command_line("benchmarks.conf.figures", [str(conf)]).source.tables.values()
    return [path for table in tables for path in table.paths if "://" not in path]


def measure_pipeline(figure: Figure, pipeline: tuple[str, ...]) -> dict[str, float]:
    """Run the README's commands. Returns the metrics of their run, and the seconds that each command took."""
    etl = run_seconds("spark-submit", "jobs/etl.py", *pipeline)
    began = time.time()
    train = run_seconds(sys.executable, "jobs/train.py", *pipeline)
    config = from_command_line("benchmarks.conf.figures", list(pipeline))
    has_folds = isinstance(config.dataset.split, FoldSplit)
    run = newest(config, kind_condition(CROSS_VALIDATION) if has_folds else "tags.strategy LIKE '%'", began)
    metrics = {"etl seconds": etl, "train seconds": train, "waits": waits(config, run), **run.data.metrics}
    if figure.baseline:
        began = time.time()
        run_seconds("spark-submit", "jobs/baseline.py", *pipeline)
        metrics["baseline"] = newest(config, kind_condition("baseline"), began).data.metrics[figure.metric]
    return metrics


def run_seconds(*command: str) -> float:
    """Run a command in the repository's root, and return its seconds. Exits if it fails."""
    print("$", *command, flush=True)
    started = time.monotonic()
    places = {"PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(ROOT / "cluster/local/spark"), "SPARK_LOCAL_IP": "127.0.0.1"}
    if code := subprocess.run(command, cwd=ROOT, env={**places, **os.environ, "LOCKSTEP_HOME": str(home())}, check=False).returncode:
        sys.exit(code)
    return time.monotonic() - started


def kind_condition(kind: str) -> str:
    return f"tags.`{KIND}` = '{kind}'"


def newest(config: Config, condition: str, since: float) -> Run:
    """The run of the pipeline's experiment that ended last, after `since`, and meets the condition. Exits if there is none."""
    client = MlflowClient(config.tracking.uri)
    experiment = client.get_experiment_by_name(config.experiment)
    assert experiment is not None, "the command has created it"
    finished = f"attributes.status = 'FINISHED' AND attributes.end_time >= {int(1_000 * since)} AND {condition}"
    runs = client.search_runs([experiment.experiment_id], finished, order_by=["attributes.end_time DESC"], max_results=1)
    return runs[0] if runs else sys.exit(f"{config.name}: the command has finished no run")


def waits(config: Config, run: Run) -> float:
    """The mean share of step time spent waiting for data, of a run or of the trainings in it."""
    client = MlflowClient(config.tracking.uri)
    trainings = client.search_runs([run.info.experiment_id], f"tags.`{PARENT}` = '{run.info.run_id}'") or [run]
    histories = [client.get_metric_history(training.info.run_id, "train/data_wait_fraction") for training in trainings]
    return statistics.mean(point.value for history in histories for point in history)


def make_row(figure: Figure, metrics: dict[str, float]) -> Row:
    value, target = metrics[figure.metric], metrics.get("baseline", figure.target)
    target = max(target, figure.target) if figure.highest else min(target, figure.target)
    good = (value >= target if figure.highest else value <= target) and metrics["train seconds"] <= 60 * figure.minutes
    return {
        "config": figure.name,
        "figure": figure.metric,
        "reached": round(value, 4),
        "asked": figure.target,
        **({"linear": round(metrics["baseline"], 4)} if "baseline" in metrics else {}),
        "ETL, s": round(metrics["etl seconds"]),
        "training, s": round(metrics["train seconds"]),
        "asked, s": round(60 * figure.minutes),
        "waits for data, %": round(100 * metrics["waits"], 2),
        "reached it": "yes" if good else "NO",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }


def save_row(row: Row, path: Path) -> None:
    """Save the row in the file, replacing the one of the same pipeline and figure."""
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"benchmark": "figures", "rows": []}
    other_rows = [old for old in content["rows"] if (old["config"], old["figure"]) != (row["config"], row["figure"])]
    order = [(figure.name, figure.metric) for figure in FIGURES]
    place = {pair: number for number, pair in enumerate(order)}
    rows = sorted(
        [*other_rows, {**row, "machine": machine()}],
        key=lambda other: place.get((other["config"], other["figure"]), len(place)),
    )
    atomic.write_file(path, f"{json.dumps({**content, 'rows': rows}, indent=1)}\n".encode())


if __name__ == "__main__":
    main()

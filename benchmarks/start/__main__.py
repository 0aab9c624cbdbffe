"""Measures whole commands for conf/digits.yaml, each beside what a person would write by hand: by turns, medians.

    python -m benchmarks.start [--repeats 5] [--folder FOLDER] [--results FOLDER] [--small]

The scripts by hand train the same network for as many steps on as many workers, and log their model in the same MLflow. The script of Spark
runs as pip installs Spark, and again with the settings of Java that `make` adds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from benchmarks.report import RESULTS, Row, package_versions, save, show

ROOT = Path(__file__).parents[2]
PLAIN_SPARK = "Spark by hand"
PEERS = {"ETL": PLAIN_SPARK, "training": "torchrun by hand"}
LONGEST = ("Ray Train by hand", "make demo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for what the commands write; by default a new one, which is removed")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--small", action="store_true", help="each command once, without the two longest: Ray Train by hand, and make demo")
    options = parser.parse_args()
    with TemporaryDirectory() as new_folder:
        folder = options.folder or Path(new_folder)
        seconds = measure(folder, 1 if options.small else options.repeats, skipped=LONGEST if options.small else ())
    rows = [row(name, values, seconds) for name, values in seconds.items()]
    show("seconds of a whole command, conf/digits.yaml", rows)
    print(save("start", {"seconds": rows}, package_versions("mlflow", "pyspark", "ray", "torch"), options.results))


def row(name: str, values: list[float], seconds: dict[str, list[float]]) -> Row:
    """The median of a command, its least and most, and how many times the peer's it is."""
    median = statistics.median(values)
    peer = seconds.get(PEERS.get(name, ""))
    ratio = round(median / statistics.median(peer), 2) if peer else None
    return {"command": name, "median": round(median, 1), "least": round(min(values), 1), "most": round(max(values), 1), "/ by hand": ratio}


def measure(folder: Path, repeats: int, skipped: tuple[str, ...]) -> dict[str, list[float]]:
    """Seconds of every command, by name. The first run of ETL, which is not measured, makes MLflow's tables."""
    settings = folder / "no-settings-of-spark"
    settings.mkdir(parents=True, exist_ok=True)
    run_command(commands(folder, -1)["ETL"], folder)
    names = [name for name in commands(folder, 0) if name not in skipped]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(repeats):
        for name in names:
            start = time.monotonic()
            run_command(commands(folder, number)[name], folder, {"SPARK_CONF_DIR": str(settings)} if name == PLAIN_SPARK else {})
            seconds[name].append(time.monotonic() - start)
    return seconds


def commands(folder: Path, number: int) -> dict[str, list[str]]:
    """Command lines by name, in the order in which one needs what another writes. `number` keeps the outputs of repeats apart."""
    uri, parquet = f"sqlite:///{folder}/mlflow.db", f"{folder}/parquet-{number}"
    config = ["conf/digits.yaml", "--tracking.uri", uri, "--dataset.path"]
    return {
        PLAIN_SPARK: ["spark-submit", "benchmarks/start/spark_job.py", parquet],
        "Spark by hand, our Java": ["spark-submit", "benchmarks/start/spark_job.py", f"{parquet}-ours"],
        "ETL": ["spark-submit", "jobs/etl.py", *config, f"{folder}/data-{number}"],
        "torchrun by hand": ["torchrun", "--nproc-per-node", "2", "-m", "benchmarks.start.torchrun_train", parquet, uri],
        "training": [sys.executable, "jobs/train.py", *config, f"{folder}/data-{number}", "--train.seed", str(number)],
        "Ray Train by hand": [sys.executable, "-m", "benchmarks.start.ray_train", parquet, f"{folder}/ray-{number}", uri],
        "make demo": [sys.executable, "cluster/local/demo.py", *config, f"{folder}/demo-{number}"],
    }


def run_command(command: list[str], folder: Path, variables: Mapping[str, str] = MappingProxyType({})) -> None:
    """Exits with what the command prints if it fails."""
    environment = {**os.environ, "LOCKSTEP_HOME": str(folder), "PYTHONPATH": str(ROOT), "MLFLOW_LOGGING_LEVEL": "ERROR", **variables}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(f"{' '.join(command)}: exit {answer.returncode}\n{answer.stdout[-2_000:]}{answer.stderr[-4_000:]}")


if __name__ == "__main__":
    main()

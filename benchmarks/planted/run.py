"""Makes ten trainings with one fault each, and a healthy one, so that somebody who does not know them can look for the causes.

    python -m benchmarks.planted.run FOLDER [--only CASE ...] [--seed N]

Each is called run-01, run-02 and so on, in random order, and FOLDER/run-XX has what its two commands leave: their logs, the pages about
the data and the run, and the metrics and tags of both runs in MLflow. Nothing there says what was planted; FOLDER/answers.json does.
Again with the same folder and seed, it makes those that are missing.
Needs root and Linux's cgroups for the slow CPU. All eleven took 51 minutes on two cores that other programs used as well.
"""

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from benchmarks.planted.cases import CASES, COMPILED, GROUP, VARIABLE, config, rows
from benchmarks.train.unequal import quota
from pipelines.tracking.history import History, download, history, newest_run

ROOT = Path(__file__).parents[2]
SHARE = 0.4
"""Of a core, for the worker with the slow CPU."""
LEAVE_SECONDS = 20.0
"""Longest wait for the processes of a training that has ended."""
OTHERS_COMPILED = 2
"""Trainings that compile their model besides the one whose fault needs that, so that it does not stand out."""
SPARK = "--master local[2] --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
"""Arguments of Spark, whose JVM lives for seconds."""
LAST = "train-tags.json"
"""The last file that a run gets."""
PAGES = {"etl": ("data.html", "data.json"), "train": ("report.html",)}


def run_case(folder: Path, name: str, case: str, compiled: bool, seed: int) -> None:
    """Run both commands of one training, and gather what they leave."""
    run_folder, work = folder / name, folder / "work" / name
    for path in (run_folder, work):
        path.mkdir(parents=True, exist_ok=True)
    (run_folder / "config.yaml").write_text(yaml.safe_dump(config(name, compiled), sort_keys=False))
    pq.write_table(rows(case, seed), work / "visits.parquet")
    places = {"PYTHONPATH": str(ROOT), "LOCKSTEP_HOME": str(folder), "SPARK_CONF_DIR": str(ROOT / "cluster/local/spark")}
    environment = {**os.environ, **places, "PYSPARK_SUBMIT_ARGS": SPARK, VARIABLE: str(CASES.index(case))}
    with slow_cpu_group(case, environment):
        for command in ("etl", "train"):
            called = [sys.executable, f"jobs/{command}.py", str(run_folder / "config.yaml")]
            with (run_folder / f"{command}.log").open("w") as log:
                code = subprocess.run(called, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
            if code:
                sys.exit(f"{name}: {command} exits with {code}\n{(run_folder / f'{command}.log').read_text()[-4_000:]}")
    gather(f"sqlite:///{folder}/mlflow.db", run_folder)


@contextmanager
def slow_cpu_group(case: str, environment: dict[str, str]) -> Iterator[None]:
    """With a slow CPU, the environment names a control group for its worker."""
    if case != "slow_cpu":
        yield
        return
    with quota(SHARE, "visits") as group:
        environment[GROUP] = str(group)
        yield
        deadline = time.monotonic() + LEAVE_SECONDS
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.1)


def gather(uri: str, run_folder: Path) -> None:
    """Copy pages, metrics and tags of both runs from MLflow."""
    training = history(uri, newest_run(uri, run_folder.name))
    for command, run in {"etl": history(uri, training.tags["dataset.run_id"]), "train": training}.items():
        download(uri, run.run_id, run_folder, PAGES[command])
        write_curves(run_folder / f"{command}-metrics.csv", run)
        (run_folder / f"{command}-tags.json").write_text(json.dumps(dict(run.tags), indent=1) + "\n")


def write_curves(path: Path, run: History) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["metric", "step", "seconds since the start", "value"])
        for name, points in run.curves.items():
            table.writerows([name, point.step, round(point.seconds - run.started, 3), point.value] for point in points)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of the order and the rows")
    arguments = parser.parse_args()
    folder, draw = arguments.folder.absolute(), random.Random(arguments.seed)
    cases = draw.sample(arguments.only, len(arguments.only))
    other_cases = [case for case in cases if case != COMPILED]
    compiled = {COMPILED, *draw.sample(other_cases, min(OTHERS_COMPILED, len(other_cases)))}
    planned = [(f"run-{number:02}", case, draw.randrange(2**32)) for number, case in enumerate(cases, 1)]
    folder.mkdir(parents=True, exist_ok=True)
    answers = {"seed": arguments.seed, "planted": {name: case for name, case, _ in planned}}
    (folder / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")
    for name, case, seed in planned:
        if (folder / name / LAST).exists():
            continue
        began = time.monotonic()
        run_case(folder, name, case, case in compiled, seed)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    print(folder / "answers.json")


if __name__ == "__main__":
    main()

"""Measures what figures and the page of a run cost at its end, as a share of a minute of training.

    python -m benchmarks.train.filing [--config conf/digits.yaml] [--repeats 5] [--results FOLDER]

Trains the pipeline for one epoch. Then processes of their own, one after another, file the figures and the page of that run anew: each
imports what draws, draws the figures of every split, and writes the page. Processor seconds tell more than the time that passed, since a
run's driver waits for its workers most of the time.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, Row, package_versions, save, show
from pipelines import api
from pipelines.data.versions.storage import locate
from pipelines.tracking.client import connect
from pipelines.tracking.training import FOLDER, TrainingRun

MINUTE = 60.0


def measure_parts(uri: str, run_id: str) -> dict[str, dict[str, float]]:
    """Seconds of each part, in a process that has only opened the run."""
    client = connect(uri)
    run = TrainingRun(client, uri, run_id, client.get_run(run_id).data.tags[FOLDER], True)
    locate(run.folder)  # a driver has used the run's folder long before, and its first use loads a library
    seconds_by_part: dict[str, dict[str, float]] = {}

    def add(part: str, began: tuple[float, float]) -> None:
        seconds_by_part[part] = {"processor, s": time.process_time() - began[0], "passed, s": time.perf_counter() - began[1]}

    def now() -> tuple[float, float]:
        return time.process_time(), time.perf_counter()

    began = now()
    from pipelines.report.evaluation import FOLDER as SPLITS  # noqa: PLC0415, what is measured
    from pipelines.report.evaluation import read_splits  # noqa: PLC0415
    from pipelines.report.figures.svg_figures import draw_figures  # noqa: PLC0415
    from pipelines.report.filing import file_report  # noqa: PLC0415
    from pipelines.report.run_data import collect  # noqa: PLC0415

    add("imports", began)
    with tempfile.TemporaryDirectory() as name:
        began = now()
        collect(run.folder, Path(name))
        for split in read_splits(Path(name) / SPLITS):
            draw_figures(split)
        add("figures", began)
    began = now()
    file_report(run)
    add("figures and page, filed", began)
    return seconds_by_part


def measure_repeatedly(uri: str, run_id: str, repeats: int) -> list[Row]:
    code = f"import json; from benchmarks.train.filing import measure_parts; print(json.dumps(measure_parts({uri!r}, {run_id!r})))"
    runs: list[dict[str, dict[str, float]]] = []
    for _ in range(repeats):
        process = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        runs.append(json.loads(process.stdout.splitlines()[-1]))
    rows: list[Row] = []
    for part in runs[0]:
        medians: dict[str, Any] = {unit: statistics.median(run[part][unit] for run in runs) for unit in runs[0][part]}
        rows.append({"part": part, **medians, "processor, % of a minute": 100 * medians["processor, s"] / MINUTE})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="conf/digits.yaml")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="filing-", dir="/tmp") as home:
        uri = f"sqlite:///{home}/mlflow.db"
        places = {"dataset.path": f"{home}/data", "train.storage": f"{home}/runs", "tracking.uri": uri, "train.epochs": 1}
        config = api.read_config(arguments.config, places)
        api.prepare(config)
        rows = measure_repeatedly(uri, api.train(config).run_id, arguments.repeats)
    title = f"figures and page of a run of {arguments.config}"
    show(title, rows)
    print(save("filing", {title: rows}, package_versions("matplotlib", "mlflow"), arguments.results))


if __name__ == "__main__":
    main()

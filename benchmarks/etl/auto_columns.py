"""Measures whether `"*": auto` takes time that grows with the columns and no faster: ETL and one epoch of training.

    python -m benchmarks.etl.auto_columns [--columns 10000] [--rows 50000] [--narrow 100] [--scale 10] [--cores N] [--folder FOLDER]

Two tables have the same number of numeric cells, one of them in --narrow columns. --scale divides the rows of both. Each command,
`jobs/etl.py` and `jobs/train.py`, is a process of its own: its start-up counts. Of ten columns six are normal, two have a long tail,
one has whole numbers, and one has missing values.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import RESULTS, Row, package_versions, save, show

ROOT = Path(__file__).parents[2]
MEMORY = "6g"
CELLS_PER_FILE = 20_000_000
SMALL_ROWS, LARGE_ROWS = 100_000, 1_000_000
"""Rows from which `lockstep init` chooses larger batches."""


def generate(folder: Path, rows: int, columns: int) -> Path:
    """Write the raw rows, unless they are there; they depend only on the arguments. Returns their folder."""
    path = folder / f"raw-{rows}x{columns}"
    if path.exists():
        return path
    draft = folder / f"{path.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    rows_per_file = max(1, CELLS_PER_FILE // columns)
    for number, start in enumerate(range(0, rows, rows_per_file)):
        table = _rows(np.random.default_rng(number), min(rows_per_file, rows - start), columns)
        pq.write_table(table, draft / f"{number:05}.parquet", compression="none", use_dictionary=False, row_group_size=rows_per_file)
    draft.rename(path)
    return path


def _rows(random: np.random.Generator, rows: int, columns: int) -> pa.Table:
    values: dict[str, Any] = {}
    for column in range(columns):
        name, kind = f"column_{column}", column % 10
        if kind in (6, 7):
            values[name] = random.lognormal(0, 3, rows)
        elif kind == 8:
            values[name] = random.integers(0, 1_000, rows)
        else:
            values[name] = random.normal(column % 7, 1 + column % 3, rows)
            if kind == 9:
                values[name] = pa.array(values[name], mask=random.random(rows) < 0.02)
    signal = np.asarray(values["column_0"]) + np.asarray(values["column_1"])
    values["label"] = (signal > np.median(signal)).astype(np.int32)
    return pa.table(values)


def write_config(raw: Path, folder: Path, rows: int, columns: int) -> Path:
    batch = 512 if rows < SMALL_ROWS else 1_024 if rows < LARGE_ROWS else 4_096
    config = {
        "name": "columns",
        "source": {"tables": {"raw": {"format": "parquet", "path": str(raw)}}},
        "dataset": {"path": str(folder / "ours"), "features": {"*": "auto"}, "target": {"label": "binary"}},
        "task": {"kind": "tabular", "hidden": [64]},
        "train": {"workers": 1, "epochs": 1, "global_batch": batch},
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }
    path = folder / f"columns-{columns}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def run_job(job: str, config: Path, folder: Path, cores: str) -> tuple[float, dict[str, float]]:
    """The seconds of a command, and those of its stages."""
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit_arguments(cores, MEMORY), "LOCKSTEP_HOME": str(folder)}
    start = time.perf_counter()
    process = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / f"{job}.py"), str(config), "--json"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"{process.stdout}\n{config}: exit code {process.returncode}")
    events = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"event": "stage"')]
    return seconds, {event["stage"]: event["seconds"] for event in events}


def measure(folder: Path, rows: int, columns: int, cores: str) -> Row:
    """The seconds of both commands and of the stages of the first, and the nanoseconds of a cell."""
    config = write_config(generate(folder, rows, columns), folder, rows, columns)
    shutil.rmtree(folder / "ours", ignore_errors=True)
    etl, stages = run_job("etl", config, folder, cores)
    train, _ = run_job("train", config, folder, cores)
    return {
        "columns": columns, "rows": rows, "etl": etl, "train": train, "seconds": etl + train,
        "ns/cell": 1e9 * (etl + train) / (rows * columns), **stages,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--narrow", type=int, default=100, help="columns of the other table")
    parser.add_argument("--scale", type=int, default=1, help="divides the rows of both tables")
    add_options(parser)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    folder = arguments.folder / "auto"
    folder.mkdir(parents=True, exist_ok=True)
    rows = arguments.rows // arguments.scale
    shapes = [(rows * arguments.columns // columns, columns) for columns in (arguments.narrow, arguments.columns)]
    table = [measure(folder, *shape, arguments.cores) for shape in shapes]
    for row in table:
        row["ratio"] = float(row["ns/cell"] or 0) / float(table[0]["ns/cell"] or 1)
    title = f'ETL and an epoch of "*": auto, {rows * arguments.columns:,} cells'
    show(title, table)
    print(save("etl-auto", {title: table}, package_versions("pyspark", "pyarrow", "numpy", "torch"), arguments.results))


if __name__ == "__main__":
    main()

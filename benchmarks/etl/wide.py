"""Measures whether ETL of many columns takes time that grows with the cells, and no faster.

    python -m benchmarks.etl.wide [--columns 3000] [--rows 200 20000] [--narrow 30] [--cores N] [--folder FOLDER] [--results FOLDER]

Each line is one command, `python jobs/etl.py`, in a process of its own: its start-up counts. The most rows are made once more as a
table of the same number of cells in --narrow columns, and the ratio compares the two. Of six columns four are floats, one is an
integer and one is text of 20 values; integers and text become vocabularies.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import RESULTS, Row, package_versions, save, show

ROOT = Path(__file__).parents[2]
MEMORY = "4g"
DISTINCT = 20
STAGES = ("spark", "analysis", "checksums", "read", "fit", "write", "commit")


def choose_encoder(column: int) -> object:
    return "standardize" if column % 6 < 4 else {"encoder": "vocabulary", "max_size": DISTINCT}


def generate(folder: Path, rows: int, columns: int) -> Path:
    """Write the raw rows, unless they are there; they depend only on the arguments. Returns their folder."""
    path = folder / f"raw-{rows}x{columns}"
    if path.exists():
        return path
    draft = folder / f"{path.name}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    rows_per_file = max(1, 10_000_000 // columns)
    for number, start in enumerate(range(0, rows, rows_per_file)):
        table = _rows(np.random.default_rng(number), min(rows_per_file, rows - start), start, columns)
        pq.write_table(table, draft / f"{number:05}.parquet", row_group_size=rows_per_file)
    draft.rename(path)
    return path


def _rows(random: np.random.Generator, rows: int, start: int, columns: int) -> pa.Table:
    words = pa.array([f"word {number}" for number in range(DISTINCT)])
    values: dict[str, object] = {"id": np.arange(start, start + rows)}
    for column in range(columns):
        if column % 6 < 4:
            values[f"column_{column}"] = random.normal(column, 1 + column % 7, rows)
        else:
            chosen = random.integers(0, DISTINCT, rows, dtype=np.int32)
            values[f"column_{column}"] = chosen if column % 6 == 4 else words.take(pa.array(chosen))
    values["label"] = random.integers(0, 2, rows, dtype=np.int32)
    return pa.table(values)


def write_config(raw: Path, folder: Path, columns: int) -> Path:
    config = {
        "name": "wide",
        "source": {"tables": {"raw": {"format": "parquet", "path": str(raw)}}},
        "dataset": {
            "path": str(folder / "ours"),
            "key": ["id"],
            "features": {f"column_{column}": choose_encoder(column) for column in range(columns)},
            "target": {"label": "binary"},
        },
        "task": {"kind": "tabular"},
        "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"},
    }
    path = folder / f"wide-{columns}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def measure(folder: Path, rows: int, columns: int, cores: str) -> Row:
    """The seconds of one command and of its stages."""
    settings = write_config(generate(folder, rows, columns), folder, columns)
    shutil.rmtree(folder / "ours", ignore_errors=True)
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit_arguments(cores, MEMORY)}
    start = time.perf_counter()
    process = subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "etl.py"), str(settings), "--json"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"{process.stdout}\n{settings}: exit code {process.returncode}")
    events = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"event": "stage"')]
    stages = {event["stage"]: event["seconds"] for event in events if event["stage"] in STAGES}
    return {"columns": columns, "rows": rows, "seconds": seconds, "cells/s": int(rows * columns / seconds), **stages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=3_000)
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 20_000])
    parser.add_argument("--narrow", type=int, default=30, help="columns of the table of as many cells as the largest")
    add_options(parser)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    folder = arguments.folder / "wide"
    folder.mkdir(parents=True, exist_ok=True)
    most = max(arguments.rows)
    cases = [(rows, arguments.columns) for rows in arguments.rows]
    if arguments.narrow:
        cases.insert(0, (most * arguments.columns // arguments.narrow, arguments.narrow))
    table: list[Row] = []
    for rows, columns in cases:
        table.append(measure(folder, rows, columns, arguments.cores))
        if arguments.narrow and rows == most:
            table[-1]["ratio"] = float(table[-1]["seconds"] or 0) / float(table[0]["seconds"] or 0)
        show(f"ETL of wide tables in {MEMORY}", table)
    print(save("etl-wide", {f"ETL of wide tables in {MEMORY}": table}, package_versions("pyspark", "pyarrow", "numpy"), arguments.results))


if __name__ == "__main__":
    main()

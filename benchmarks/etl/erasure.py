"""Measures an erasure of keys against an ETL in full: seconds of the two commands, and which files still have a value of the rows.

    python -m benchmarks.etl.erasure [--rows 5000000] [--keys 100] [--repeats 3] [--cores N] [--folder FOLDER]

The rows are those of `benchmarks/etl/against_by_hand.py`, with a key. Both commands are processes, as a person starts them. The keys are
drawn from all rows, so that nearly every part has one. Each repeat erases other keys, and then searches all versions for their hashes.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.etl.against_by_hand import config
from benchmarks.etl.increments import KEY, add_key, arrive
from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import Row, package_versions, save, show
from pipelines.lifecycle.erasure.erase import erase_rows

ROOT = Path(__file__).parents[2]


def command_seconds(job: str, *arguments: str, env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, f"jobs/{job}.py", *arguments], cwd=ROOT, env=env, check=True, capture_output=True)
    return time.perf_counter() - start


def measure(arguments: argparse.Namespace) -> list[Row]:
    folder: Path = arguments.folder / "erasure"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "raw").mkdir(parents=True)
    settings = add_key(config(folder / "raw", "parquet", folder), folder / "data")
    settings_file = folder / "rows.yaml"
    settings_file.write_text(json.dumps(settings.model_dump(mode="json", by_alias=True, exclude_unset=True)))
    arrive(folder, 0, arguments.rows, "parquet")
    env = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit_arguments(arguments.cores, "4g"), "PYTHONPATH": str(ROOT)}
    numbers = np.random.default_rng(0).permutation(arguments.rows)
    table: list[Row] = []
    for repeat in range(arguments.repeats):
        shutil.rmtree(folder / "data", ignore_errors=True)
        etl_seconds = command_seconds("etl", str(settings_file), env=env)
        keys = [f"{KEY}={number}" for number in numbers[repeat * arguments.keys : (repeat + 1) * arguments.keys]]
        flags = [word for key in keys for word in ("--key", key)]
        seconds = command_seconds("erase", str(settings_file), *flags, "--yes", "--grace", "0", env=env)
        versions_left = erase_rows(settings, keys).versions
        table.append(
            {"repeat": repeat, "ETL seconds": etl_seconds, "seconds": seconds, "of ETL": seconds / etl_seconds, "left": len(versions_left)}
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    add_options(parser)
    arguments = parser.parse_args()
    table = measure(arguments)
    show(f"erasure of {arguments.keys} of {arguments.rows:,} keys", table)
    print(f"median: {statistics.median(row['of ETL'] for row in table):.3f} of the ETL in full")
    print(save("etl-erasure", {"erasure": table}, package_versions("pyspark", "pyarrow", "numpy")))


if __name__ == "__main__":
    sys.exit(main())

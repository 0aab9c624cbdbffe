"""Measures what the page about the data costs an ETL: the seconds of a checkout from before it and of this one, in turns.

    python -m benchmarks.etl.page --before CHECKOUT [--rows 1000000] [--turns 3] [--cores N] [--folder FOLDER]

The rows are those of `benchmarks/etl/against_by_hand.py`, 39 columns. Each turn is a process of its own, which first makes a version of
50,000 rows: that compiles Spark's code and starts Python's workers.
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

from benchmarks.etl.against_by_hand import config, generate
from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import Row, package_versions, save, show
from pipelines import api

ROOT = Path(__file__).parents[2]
# The pipelines are those of the checkout that PYTHONPATH names, and this module is always this one.
_TURN = f"""
import sys
from pathlib import Path
import pipelines.api
sys.path.insert(0, {str(ROOT)!r})
from benchmarks.etl import page
print(page.turn(int(sys.argv[1]), Path(sys.argv[2])))
"""


def turn(rows: int, folder: Path) -> float:
    """Seconds of one ETL in this process."""
    seconds = 0.0
    for count in (50_000, rows):
        settings = config(generate(folder, count, "parquet"), "parquet", folder)
        shutil.rmtree(folder / "ours", ignore_errors=True)
        start = time.perf_counter()
        api.prepare(settings)
        seconds = time.perf_counter() - start
    return seconds


def measure_etl(checkout: Path, arguments: argparse.Namespace) -> float:
    environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": submit_arguments(arguments.cores, "4g"), "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", _TURN, str(arguments.rows), str(arguments.folder)]
    process = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(process.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout without the page")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    add_options(parser)
    arguments = parser.parse_args()
    seconds_by_way: dict[str, list[float]] = {"before": [], "with the page": []}
    for _ in range(arguments.turns):
        for name, checkout in (("before", arguments.before.absolute()), ("with the page", ROOT)):
            seconds_by_way[name].append(measure_etl(checkout, arguments))
            print(json.dumps({name: seconds_by_way[name][-1]}), flush=True)
    least = {name: min(seconds) for name, seconds in seconds_by_way.items()}
    table: list[Row] = [
        {"ETL": name, "rows": arguments.rows, "seconds, least": least[name], "seconds, median": statistics.median(seconds_by_way[name])}
        for name in seconds_by_way
    ]
    for row in table:
        row["ratio of least"] = least[str(row["ETL"])] / least["before"]
    show("What the page costs", table)
    print(save("etl-page", {"What the page costs": table}, package_versions("pyspark", "pyarrow", "numpy")))


if __name__ == "__main__":
    main()

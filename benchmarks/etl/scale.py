"""Measures whether ETL of ten times the rows takes ten times as long, in the same memory.

    python -m benchmarks.etl.scale [--rows 5000000 50000000] [--cores N] [--memory 4g] [--folder FOLDER]

The rows are those of `benchmarks/etl/against_by_hand.py`. --memory is for Spark's JVM, which is driver and executor. The peak
in the table is that of all of Spark's processes, including Python's workers.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import psutil

from benchmarks.etl.against_by_hand import config, generate
from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.report import Row, package_versions, save, show
from pipelines.etl.run import run
from pipelines.spark.session import session

GIB = 2**30


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The most memory that this process's descendants had during the block, in bytes; shared memory is divided among them (PSS)."""
    most, stop = [0], Event()

    def sample_memory() -> None:
        while not stop.wait(1.0):
            most[0] = max(most[0], sum(_bytes(child) for child in psutil.Process().children(recursive=True)))

    thread = Thread(target=sample_memory)
    thread.start()
    try:
        yield most
    finally:
        stop.set()
        thread.join()


def _bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


def measure(rows: int, folder: Path) -> Row:
    settings = config(generate(folder, rows, "parquet"), "parquet", folder)
    shutil.rmtree(folder / "ours", ignore_errors=True)
    start = time.perf_counter()
    with peak_memory() as most:
        run(settings)
    seconds = time.perf_counter() - start
    return {"rows": rows, "seconds": seconds, "seconds per million rows": seconds / rows * 1e6, "peak GiB": most[0] / GIB}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[5_000_000, 50_000_000])
    add_options(parser)
    parser.add_argument("--memory", default="4g", help="of Spark's JVM")
    arguments = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(arguments.cores, arguments.memory)
    session("benchmark")
    measure(50_000, arguments.folder)  # warm-up: compiles Spark's code, and starts Python's workers
    table: list[Row] = []
    for rows in arguments.rows:
        table.append(measure(rows, arguments.folder))
        table[-1]["ratio"] = float(table[-1]["seconds per million rows"]) / float(table[0]["seconds per million rows"])
        show(f"ETL in {arguments.memory}", table)
    print(save("etl-scale", {f"ETL in {arguments.memory}": table}, package_versions("pyspark", "pyarrow", "numpy")))


if __name__ == "__main__":
    sys.exit(main())

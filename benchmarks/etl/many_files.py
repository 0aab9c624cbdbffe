"""What the driver of an ETL does with a table of very many files: seconds, and memory.

    python -m benchmarks.etl.many_files [--files 10000000] [--real 0] [--folder FOLDER] [--results FOLDER]

The paths, sizes and checksums are made up, so that ten million files need no disk; each step runs in the order in which an ETL does it.
With `--real`, so many small files are written to a thousand folders, and are listed and hashed by Spark's tasks.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.loader.large_index import time_call
from pipelines.config.source.source import Table
from pipelines.data.sources.files.file_table import checksums, find_in_tasks, is_pack_worthwhile, stats
from pipelines.data.sources.files.files import find, task_bytes, whole_files
from pipelines.data.sources.files.listing import COLUMNS, distinct
from pipelines.data.sources.files.spark_files import BinaryFile
from pipelines.data.versions.source_files import SourceFiles, source_summaries
from pipelines.spark.session import session

FOLDERS = 1_000
ROOT = "/data/pictures/train"
Result = dict[str, float]


class Steps:
    """Measures steps: seconds of each, and the memory that it leaves in use."""

    def __init__(self) -> None:
        self.results: Result = {}

    def measure(self, name: str, call: Callable[[], Any]) -> Any:
        self.results[f"{name}, s"], value = time_call(call)
        self.results[f"{name}, MB in use"] = psutil.Process().memory_info().rss / 2**20
        return value


def made_up_listing(files: int) -> Iterator[pa.Table]:
    """The columns of so many files in FOLDERS folders, in the order of paths and in batches, as tasks give them."""
    opening, middle, ending, nothing = (pa.scalar(text, pa.large_string()) for text in (f"{ROOT}/", "/image-", ".jpg", ""))
    for start in range(0, files, 50_000):
        number = pa.array(np.arange(start, min(start + 50_000, files)))
        folder = pc.utf8_lpad(pc.divide(number, max(files // FOLDERS, 1)).cast(pa.large_string()), 8, "0")
        name = pc.utf8_lpad(number.cast(pa.large_string()), 12, "0")
        path = pc.binary_join_element_wise(opening, folder, middle, name, ending, nothing)
        moment = pc.add(pc.multiply(number, 1_000_003), 1_700_000_000_000_000).cast(COLUMNS.field("modified").type)
        yield pa.table([path, pa.repeat(700, len(number)), moment, pa.repeat(nothing, len(number))], COLUMNS)


def use_made_up(files: int) -> Result:
    steps = Steps()
    listing = steps.measure("list", lambda: distinct([pa.concat_tables(made_up_listing(files))]))
    steps.measure("judge", lambda: is_pack_worthwhile(listing))
    steps.measure("tasks of a job", lambda: whole_files(listing[:500_000], task_bytes(listing, 2)))
    steps.measure("state", lambda: stats(listing))
    digests = pa.array([f"sha256:{sha256(number.to_bytes(8)).hexdigest()}" for number in range(1_000)], pa.large_string())
    listed = SourceFiles(listing.table.select(["path", "bytes"]).append_column("checksum", digests.take(np.arange(files) % 1_000)))
    table = BinaryFile("pictures", Table(format="binaryFile", path=ROOT))
    table.files = listing
    steps.measure("identity", lambda: sum(map(len, table.content_lines(listed, with_names=True))))
    steps.measure("summary", lambda: source_summaries({"pictures": listed}))
    return steps.results | {"peak, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10}


def use_real(files: int, folder: Path) -> Result:
    """Files of a few bytes, written unless they are there, found and hashed by tasks of Spark."""
    root = folder / f"files-{files}"
    for number in range(0 if (root / "written").exists() else files):
        path = root / f"{number % FOLDERS:04}" / f"{number:09}.txt"
        if number < FOLDERS:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number)
    (root / "written").touch()
    spark, steps = session("benchmark"), Steps()
    listing = steps.measure("find", lambda: find(str(root), find_in_tasks))
    steps.measure("hash", lambda: checksums(spark, listing))
    return steps.results | {"peak, MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000_000)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--job", choices=("made up", "real"), help="run only this job, here")
    add_options(parser)
    parser.add_argument("--results", help="folder for many_files.json")
    arguments = parser.parse_args()
    if arguments.job:
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", submit_arguments(arguments.cores))
        run = use_real(arguments.real, arguments.folder) if arguments.job == "real" else use_made_up(arguments.files)
        print(json.dumps(run))
        return
    results: dict[str, Result] = {}
    for job, files in (("made up", arguments.files), ("real", arguments.real)):
        if files:
            output = subprocess.run([sys.executable, "-m", __spec__.name, *sys.argv[1:], "--job", job], check=True, stdout=subprocess.PIPE)
            results[job] = json.loads(output.stdout.splitlines()[-1])
            print(f"{files:,} files, {job}", *(f"{name:28} {value:10.2f}" for name, value in results[job].items()), sep="\n")
    if arguments.results:
        Path(arguments.results).mkdir(parents=True, exist_ok=True)
        Path(arguments.results, "many_files.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

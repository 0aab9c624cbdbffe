"""Measures increments against ETLs in full: seconds, bytes written, the loader's rate after a chain, and whether the sets are equal.

    python -m benchmarks.etl.increments [--rows 5000000] [--share 0.05] [--nights 10] [--format parquet|csv] [--cores N] [--folder FOLDER]

The rows are those of `benchmarks/etl/against_by_hand.py`, with a key. After a first ETL, as many nights follow, with `share` of the rows
each. An ETL in full follows the first night and the last one, in the same session; its encoders have other states. So the sets of rows are
compared with those of an ETL in full whose encoders have no state, at a tenth of the rows.
"""

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.etl.against_by_hand import FLOATS, ROWS_PER_FILE, _rows, config, generate
from benchmarks.etl.options import add_options, submit_arguments
from benchmarks.loader.processes import measure as measure_loader
from benchmarks.report import Row, package_versions, save, show
from pipelines.config import Config, parse
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.versions import open_version
from pipelines.etl.run import run
from pipelines.spark.session import session

KEY = "id"
MIB = 2**20


def rows_with_key(first: int, file: int, rows: int) -> pa.Table:
    """Rows of a file, with keys from `first` on."""
    table = _rows(first + file, rows)
    start = first + file * ROWS_PER_FILE
    return table.add_column(0, KEY, pa.array(np.arange(start, start + rows, dtype=np.int64)))


def arrive(folder: Path, first: int, rows: int, kind: str) -> None:
    """Write rows with keys from `first` on into the table's folder."""
    make = partial(rows_with_key, first)
    make.__name__ = f"_from_{first}_rows"  # type: ignore[attr-defined]
    files = generate(folder, rows, kind, make)
    for file in sorted(files.iterdir()):
        os.link(file, folder / "raw" / f"{first:012}-{file.name}")


def measure_seconds(make: Callable[[], Manifest]) -> tuple[Manifest, float]:
    start = time.perf_counter()
    manifest = make()
    return manifest, time.perf_counter() - start


def add_key(settings: Config, path: Path, is_stateless: bool = False) -> Config:
    """The config of a keyed table, its versions in the folder `path`; with encoders that have no state, if so."""
    values = settings.model_dump(mode="json", exclude_unset=True)
    table = values["source"]["tables"]["raw"]
    table["schema"] = f"{KEY} long, {table.pop('ddl', table.get('schema', ''))}"
    values["dataset"] |= {"key": [KEY], "path": str(path)}
    if is_stateless:
        values["dataset"]["features"] = dict.fromkeys(FLOATS, "identity")
    return parse(values, "benchmark")


def written_bytes(config: Config, manifest: Manifest) -> int:
    """Bytes of the files in the version's own folder."""
    root = Path(config.dataset.path) / manifest.version
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file())


def rate(config: Config, cores: int) -> float:
    """Rows per second of later epochs, without cache."""
    root = open_version(config.dataset.path, config.data_identity).root
    rates = [measure_loader("ours", "epochs", cores=cores, folder=root, batch=4_096, cache=False)["later"] for _ in range(3)]
    return statistics.median(value for value in rates if value)


def measure(arguments: argparse.Namespace, folder: Path, is_stateless: bool = False) -> tuple[list[Row], bool]:
    """A row for each night, and whether the sets of rows of the last one are those of an ETL in full."""
    shutil.rmtree(folder / "raw", ignore_errors=True)
    (folder / "raw").mkdir(parents=True)
    settings = config(folder / "raw", arguments.format, folder)
    grown, full = (add_key(settings, folder / name, is_stateless) for name in ("grown", "full"))
    for path in (grown.dataset.path, full.dataset.path):
        shutil.rmtree(path, ignore_errors=True)
    arrive(folder, 0, arguments.rows, arguments.format)
    run(grown)
    table: list[Row] = []
    new_rows, cores = int(arguments.rows * arguments.share), len(os.sched_getaffinity(0))
    for night in range(1, arguments.nights + 1):
        arrive(folder, arguments.rows + night * ROWS_PER_FILE, new_rows, arguments.format)
        manifest, seconds = measure_seconds(partial(run, grown, parent_name="previous"))
        row: Row = {"night": night, "seconds": seconds, "MiB written": written_bytes(grown, manifest) / MIB}
        if night in (1, arguments.nights):
            in_full, full_seconds = measure_seconds(partial(run, full))
            share = written_bytes(full, in_full) * new_rows / (arguments.rows + night * new_rows)
            row |= {"of full": seconds / full_seconds, "of the rows' bytes": row["MiB written"] * MIB / share}
            if not is_stateless:  # that run is for its sets of rows
                row["loader / full"] = rate(grown, cores) / rate(full, cores)
        table.append(row)
    digests = [{split: summary.rows_digest for split, summary in version.splits.items()} for version in (manifest, in_full)]
    return table, digests[0] == digests[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet")
    add_options(parser)
    arguments = parser.parse_args()
    os.environ["PYSPARK_SUBMIT_ARGS"] = submit_arguments(arguments.cores, "4g")
    session("benchmark")
    small = argparse.Namespace(**{**vars(arguments), "rows": arguments.rows // 10})
    _, are_equal = measure(small, arguments.folder / "small", is_stateless=True)  # and Spark's code is compiled
    print(f"sets of rows after {arguments.nights} nights, encoders without state: {'equal' if are_equal else 'DIFFERENT'}")
    table, _ = measure(arguments, arguments.folder / "large")
    show(f"increments of {arguments.share:.0%} of {arguments.rows:,} rows", table)
    print(save("etl-increments", {"increments": table}, package_versions("pyspark", "pyarrow", "numpy")))


if __name__ == "__main__":
    sys.exit(main())

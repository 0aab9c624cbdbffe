"""What the index of a version costs a worker, and the commit that writes it, with a thousand and with a million row groups.

    python -m benchmarks.loader.large_index [--row-groups 1000 1000000] [--results FOLDER]

A million row groups are those of a version of 16 TB. They are synthetic, ten to a file, with digests and checksums of random bytes, and the
files do not exist: an index is opened without them. Every opening runs in a process of its own, whose peak of resident memory is compared
with that before the opening."""

import argparse
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.data.loader.order import Epoch, Order
from pipelines.data.loader.reader import Reader
from pipelines.data.versions import storage
from pipelines.data.versions.commit import commit
from pipelines.data.versions.manifest import Manifest, content_digest, split_summaries
from pipelines.data.versions.parts import ROW_GROUPS
from pipelines.data.versions.plain import identity_encoders
from pipelines.data.versions.row_groups import BATCH_ROWS, RowGroups, compact
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import open_version

GROUPS_PER_FILE = 10
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
Result = dict[str, float]


def synthetic_row_groups(count: int) -> RowGroups:
    """Row groups of 16 MiB, in the order in which ETL collects them."""
    random = np.random.default_rng(0)
    splits = np.repeat([*SHARES], np.diff(np.round(np.cumsum([0, *SHARES.values()]) * count).astype(int)))
    part = np.arange(count) // GROUPS_PER_FILE
    index = np.arange(count) % GROUPS_PER_FILE
    columns = {
        "split": splits,
        "part": part,
        "index": index,
        "file": [f"data-0123abcd/split={split}/part-{number:05}-{number:012x}.parquet" for split, number in zip(splits, part, strict=True)],
        "rows": random.integers(50_000, 150_000, count),
        "offset": index * 2**24,
        "bytes": np.full(count, 2**24),
        "checksum": [random.bytes(16).hex() for _ in range(count)],
        "footer_offset": np.full(count, GROUPS_PER_FILE * 2**24),
        "footer_checksum": [f"{number:032x}" for number in part],
        "digest": [random.bytes(32).hex() for _ in range(count)],
    }
    table = pa.table({field.name: pa.array(columns[field.name], field.type) for field in ROW_GROUPS})
    return RowGroups(compact(table.to_batches(BATCH_ROWS), count))


def commit_synthetic(folder: str, count: int) -> Result:
    """Commit a version of `count` row groups in a folder; seconds of each part of the driver's work."""
    filesystem, root = storage.locate(folder)
    storage.make_folder(filesystem, root)
    encoders = identity_encoders((TensorColumn("x", "float32", (), "feature"), TensorColumn("y", "int64", (), "target")))
    groups = synthetic_row_groups(count)
    digest_seconds, digest = time_call(lambda: content_digest(encoders, groups))
    summary_seconds, splits = time_call(lambda: split_summaries(encoders, groups))
    manifest = Manifest(name="large", version="0" * 12, digest=digest, attempt="0123abcd", encoders=encoders, splits=splits)
    commit_seconds, _ = time_call(lambda: commit(filesystem, root, manifest, groups))
    size = Path(root, "row_groups-0123abcd.parquet").stat().st_size
    return {"digest_s": digest_seconds, "summaries_s": summary_seconds, "commit_s": commit_seconds, "index_mb": size / 1e6}


def open_in_driver(folder: str, pickled: str) -> Result:
    """Open the version, as a driver does, and pickle it for the workers."""
    before = peak_mb()
    seconds, version = time_call(lambda: open_version(folder))
    opened = peak_mb()
    content = pickle.dumps(version)
    Path(pickled).write_bytes(content)
    return {"open_s": seconds, "open_mb": opened - before, "pickle_mb": len(content) / 1e6}


def open_in_worker(pickled: str) -> Result:
    """Unpickle the version, as a worker does, make a reader of its training split, and plan an epoch of one of eight shards."""
    before, content = peak_mb(), Path(pickled).read_bytes()
    seconds, reader = time_call(lambda: Reader(pickle.loads(content), "train"))
    opened = peak_mb()
    group_seconds, _ = time_call(lambda: [reader.groups[number] for number in range(0, len(reader.groups), len(reader.groups) // 100)])
    epoch_seconds, _ = time_call(lambda: Epoch(Order(shards=8, global_batch=4_096), reader.group_rows, 0).shard(3))
    planned = peak_mb()
    groups = {"worker_group_us": group_seconds * 1e4}
    return {"worker_s": seconds, "worker_mb": opened - before, **groups, "epoch_s": epoch_seconds, "epoch_mb": planned - opened}


def measure(count: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        root, pickled = f"{folder}/version", f"{folder}/version.pickle"
        steps = [("commit_synthetic", [root, count]), ("open_in_driver", [root, pickled]), ("open_in_worker", [pickled])]
        results = [_run_apart(function, arguments) for function, arguments in steps]
    return {name: value for result in results for name, value in result.items()}


def _run_apart(function: str, arguments: list[Any]) -> Result:
    """The result of a function of this module in a process of its own."""
    code = f"import json; from benchmarks.loader.large_index import {function}; print(json.dumps({function}(*{arguments!r})))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def time_call(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row-groups", nargs="+", type=int, default=[1_000, 1_000_000])
    parser.add_argument("--results", help="folder for large_index.json")
    arguments = parser.parse_args()
    results = {count: measure(count) for count in arguments.row_groups}
    for name in next(iter(results.values())):
        print(f"{name:16}", *(f"{count:>10,}: {values[name]:9.4f}" for count, values in results.items()))
    if arguments.results:
        Path(arguments.results).mkdir(parents=True, exist_ok=True)
        Path(arguments.results, "large_index.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

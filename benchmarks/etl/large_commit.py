"""What the driver of an ETL does at the end, with the reports of as many tasks as there are parts: seconds, and growth of its peak memory.

    python -m benchmarks.etl.large_commit [--parts 1000 100000] [--results FOLDER]

Each part has ten row groups, so that a hundred thousand parts are a version of 16 TB. The parts are empty files, of which some were left by
tasks that were retried; the reports arrive as Spark hands them over, a batch of Arrow from each task."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.loader.large_index import GROUPS_PER_FILE, peak_mb, synthetic_row_groups, time_call
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Report, commit, merge_reports, remove_debris
from pipelines.data.versions.manifest import Manifest, content_digest, split_summaries
from pipelines.data.versions.plain import identity_encoders
from pipelines.data.versions.schema import TensorColumn
from pipelines.data.versions.versions import open_version

FILES_PER_RETRY = 1_000
"""Of so many parts, one was written twice."""
VERSION = "0" * 12
Result = dict[str, float]


def write_reports(folder: str, parts: int) -> None:
    """Make the files of a version, and the stream of the tasks' reports."""
    groups = synthetic_row_groups(parts * GROUPS_PER_FILE)
    root = Path(folder, VERSION)
    for split in groups.splits:
        Path(root, f"data-0123abcd/split={split}").mkdir(parents=True)
    writer = None
    for part in range(parts):
        report = Report(groups[part * GROUPS_PER_FILE : (part + 1) * GROUPS_PER_FILE], accepted=part)
        file = Path(root, report.row_groups[0].file)
        file.touch()
        if part % FILES_PER_RETRY == 0:
            file.with_name(f"retried-{part}.parquet").touch()
            report.quarantine[f"quarantine-0123abcd/{part}.parquet"] = 1
        batch = report.to_batch()
        writer = writer or pa.ipc.new_stream(f"{folder}/reports", batch.schema)
        writer.write_batch(batch)
    assert writer is not None
    writer.close()


def end_etl(folder: str) -> Result:
    """Each step of the driver in turn."""
    filesystem, root = storage.locate(f"{folder}/{VERSION}")
    encoders = identity_encoders((TensorColumn("x", "float32", (), "feature"), TensorColumn("y", "int64", (), "target")))
    results: Result = {}

    def step(name: str, call: Callable[[], Any]) -> Any:
        before = peak_mb()
        results[f"{name}_s"], value = time_call(call)
        results[f"{name}_mb"] = peak_mb() - before
        return value

    collected = [step("collect", lambda: pa.ipc.open_stream(f"{folder}/reports").read_all())]
    report = step("merge", lambda: merge_reports(collected.pop()))
    digest = step("digest", lambda: content_digest(encoders, report.row_groups))
    splits = step("summaries", lambda: split_summaries(encoders, report.row_groups))
    manifest = Manifest(name="large", version=VERSION, digest=digest, attempt="0123abcd", encoders=encoders, splits=splits)
    step("commit", lambda: commit(filesystem, root, manifest, report.row_groups, report.quarantine))
    step("debris", lambda: remove_debris(filesystem, root.rpartition("/")[0]))
    version = step("open", lambda: open_version(root))
    assert len(version.row_groups) == len(report.row_groups)
    assert not list(Path(root).rglob("retried-*")), "files that no report names are removed"
    return results


def measure(parts: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        write_reports(folder, parts)
        code = f"import json; from benchmarks.etl.large_commit import end_etl; print(json.dumps(end_etl({folder!r})))"
        output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        return dict(json.loads(output.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", type=int, default=[1_000, 100_000])
    parser.add_argument("--results", help="folder for large_commit.json")
    arguments = parser.parse_args()
    results = {parts: measure(parts) for parts in arguments.parts}
    for name in next(iter(results.values())):
        print(f"{name:16}", *(f"{parts:>10,}: {values[name]:9.4f}" for parts, values in results.items()))
    if arguments.results:
        Path(arguments.results).mkdir(parents=True, exist_ok=True)
        Path(arguments.results, "large_commit.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

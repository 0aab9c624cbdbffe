"""P2, for pipelines of every kind: each row of the query is once in the parts or once in the quarantine, whatever refuses it.

A pipeline takes seconds, so `make test` draws a few. For 200 of them:
LOCKSTEP_EXAMPLES=200 python -m pytest tests/integration/test_conserved.py
"""

import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow import MlflowClient
from pyspark.sql import DataFrame, SparkSession
from small import Small, smalls
from stores import new_store

from pipelines.config import parse
from pipelines.data.sources.base import raw_tables
from pipelines.data.versions import storage
from pipelines.data.versions.commit import Attempt, Report, commit
from pipelines.data.versions.data_profile import Survey
from pipelines.data.versions.manifest import Manifest
from pipelines.data.versions.schema import END
from pipelines.data.versions.versions import versions
from pipelines.errors import ConfigError, DatasetError, SourceError, TrackingError
from pipelines.etl import make as making
from pipelines.etl.make import make
from pipelines.etl.query import analyse
from pipelines.etl.run import run
from pipelines.etl.summary import version_summary
from pipelines.etl.write import WritingJob, write_parts
from pipelines.report.data_profile import profile_files
from pipelines.spark.stages import Stages
from pipelines.tracking.job_runs import EtlRun

EXAMPLES = int(os.environ.get("LOCKSTEP_EXAMPLES", "6"))


@pytest.fixture(scope="module")
def small_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session, with as many partitions as a few rows need."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", before)


def make_version(spark: SparkSession, values: dict[str, Any], folder: Path) -> tuple[Manifest, Path]:
    """Make and commit the version of a pipeline as ETL does, without MLflow and checksums."""
    config = parse(values, "small.yaml")
    filesystem, place = storage.locate(config.dataset.path)
    attempt = Attempt(filesystem, f"{place}/{'0' * 12}", uuid4().hex[:8])
    tables = raw_tables(config.source)
    result = make(spark, config, {}, tables, analyse(spark, config, tables), attempt, Stages())
    manifest = commit(filesystem, attempt.root, result.manifest, result.report.row_groups, result.report.quarantine)
    details = result.summary.samples, result.summary.contents, result.report.samples, {"fit": 1.0}
    assert "<h1>" in profile_files(Survey(config, manifest, {}, *details))["data.html"]
    return manifest, Path(attempt.root)


def quarantine_rows(root: Path, manifest: Manifest) -> list[dict[str, Any]]:
    folder = root / f"quarantine-{manifest.attempt}"
    return pq.read_table(folder).to_pylist() if folder.exists() else []


def part_values(root: Path, column: str) -> list[Any]:
    return [
        value for file in sorted(root.glob("data-*/*/*.parquet")) for value in pq.read_table(file, columns=[column])[column].to_pylist()
    ]


@pytest.mark.timeout(60 * EXAMPLES)
@settings(max_examples=EXAMPLES, deadline=None, derandomize="LOCKSTEP_EXAMPLES" not in os.environ)
@given(small=smalls())
def test_p2_every_row_is_found_once(small_spark: SparkSession, small: Small) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            manifest, root = make_version(small_spark, small.config(folder), folder)
        except (SourceError, ConfigError) as error:
            assert re.search("no row is left for|in the training split", str(error)) and not list(folder.rglob("manifest.json"))
            return
        finally:
            small_spark.catalog.clearCache()
        refused = quarantine_rows(root, manifest)
        rows = [json.loads(row["record"])["uid"] for row in refused if row["source"] is None]
        assert Counter(part_values(root, "uid") + rows) == small.uids
        assert Counter(row["source"] is None for row in refused)[False] == small.malformed
        assert sum(manifest.quarantined.values()) == len(refused)
        balance = manifest.balance
        assert balance is not None and balance.query == small.uids.total() == balance.taken + balance.refused
        assert balance.tables["t"].model_dump() == {
            "parsed": len(small.rows) + small.malformed,
            "handed_on": len(small.rows),
            "refused": small.malformed,
        }


@settings(max_examples=max(EXAMPLES // 10, 2), deadline=None, derandomize="LOCKSTEP_EXAMPLES" not in os.environ)
@given(texts=st.lists(st.none() | st.text("ab \n", max_size=9), min_size=3, max_size=30), length=st.integers(1, 12))
def test_p2_every_document_is_in_the_windows_or_in_the_quarantine(small_spark: SparkSession, texts: list[str | None], length: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "t.json").write_text("".join(json.dumps({"text": text}) + "\n" for text in ["aa", *texts]))
        values = {
            "name": "small",
            "source": {
                "tables": {"t": {"format": "json", "path": str(folder / "t.json"), "schema": "text string"}},
                "expect": {"not b": "text IS NULL OR text <> 'b'"},
                "max_quarantined": 1.0,
            },
            "dataset": {
                "path": str(folder / "data"),
                "split": {"train": 1.0, "validation": 0.0, "test": 0.0},
                "features": {"text": {"encoder": "bytes", "length": length}},
                "part_bytes": 60,
            },
            "task": {"kind": "language"},
        }
        manifest, root = make_version(small_spark, values, folder)
        small_spark.catalog.clearCache()
        refused = [json.loads(row["record"])["text"] for row in quarantine_rows(root, manifest)]
        documents = [text for text in ["aa", *texts] if text and text != "b"]
        assert Counter(refused) + Counter(documents) == Counter(["aa", *texts])
        tokens = Counter(token for window in part_values(root, "text") for token in list(window)[1:])
        assert {number: count for number, count in tokens.items() if number != END} == Counter(
            byte + 1 for text in documents for byte in text.encode()
        )
        balance = manifest.balance
        assert balance is not None and (balance.query, balance.taken) == (len(texts) + 1, len(documents))
        assert balance.made == manifest.splits["train"].rows and tokens[END] >= len(documents)


ROWS = 20_000


@pytest.fixture
def numbers(tmp_path: Path) -> dict[str, Any]:
    """A pipeline over 20,000 records of CSV, three of them malformed."""
    (tmp_path / "t.csv").write_text("".join(f"{number},{number / 7:.3f}\n" for number in range(ROWS)) + "x,1\ny,1\n1,2,3\n")
    return {
        "name": "numbers",
        "source": {
            "tables": {"t": {"format": "csv", "path": str(tmp_path / "t.csv"), "schema": "uid bigint, v double"}},
            "expect": {"by a hash": "xxhash64(uid) % 2 = 0"},
            "max_quarantined": 0.9,
        },
        "dataset": {"path": str(tmp_path / "data"), "features": {"uid": "identity"}, "target": {"v": "identity"}, "part_bytes": 50_000},
        "task": {"kind": "tabular"},
        "tracking": {"uri": f"sqlite:///{tmp_path}/mlflow.db"},
    }


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("condition", ["rand() < 0.5", "hash(uuid()) % 2 = 0", "monotonically_increasing_id() < 100"])
def test_p2_what_lost_rows_and_doubled_them_is_refused(numbers: dict[str, Any], tmp_path: Path, condition: str) -> None:
    name = condition.partition("(")[0].replace("hash", "uuid")
    for key, sql in (("source.expect.x", {"expect": {"x": condition}}), ("source.query", {"query": f"SELECT * FROM t WHERE {condition}"})):
        with pytest.raises(ConfigError, match=rf"^{key}: {name}\(\) may give another result each time"):
            run(parse(numbers | {"source": numbers["source"] | sql}, "numbers.yaml"))
    assert not (tmp_path / "data").exists() and not (tmp_path / "mlflow.db").exists()


def test_p2_half_of_the_rows_are_refused_and_all_are_there(spark: SparkSession, numbers: dict[str, Any], tmp_path: Path) -> None:
    manifest, root = make_version(spark, numbers, tmp_path)
    refused = quarantine_rows(root, manifest)
    uids = [json.loads(row["record"])["uid"] for row in refused if row["source"] is None]
    assert sorted(part_values(root, "uid") + uids) == list(range(ROWS)) and 9_700 < len(uids) < 10_300
    lines = version_summary(parse(numbers, "numbers.yaml"), manifest).splitlines()
    assert lines[1].startswith(f"{len(refused):,} of 20,003 rows were refused (") and lines[1].endswith(
        f"{root}/quarantine-{manifest.attempt}:"
    )
    assert lines[2].startswith(f'  {len(uids):,} × by a hash, such as {{"uid": ')
    assert len(lines) == 2 + len(manifest.quarantined)
    assert any(" × t: " in line and ", such as " in line for line in lines[3:])


def _drop_accepted_row(report: Report) -> None:
    report.accepted -= 1


def _add_accepted_row(report: Report) -> None:
    report.accepted += 1


def _drop_refused_row(report: Report) -> None:
    report.refused["by a hash"] -= 1


def _drop_quarantine_file(report: Report) -> None:
    report.quarantine.popitem()


def _drop_written_row(report: Report) -> None:
    first, *remaining = report.row_groups
    report.row_groups = [replace(first, rows=first.rows - 1), *remaining]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("alter", "words"),
    [
        (_drop_accepted_row, "the query gave 20,000 rows, of which "),
        pytest.param(_add_accepted_row, "the query gave 20,000 rows, of which ", marks=pytest.mark.full),
        pytest.param(_drop_refused_row, "the query gave 20,000 rows, of which ", marks=pytest.mark.full),
        pytest.param(_drop_quarantine_file, "rows were refused, and the quarantine holds ", marks=pytest.mark.full),
        pytest.param(_drop_written_row, "and the parts hold ", marks=pytest.mark.full),
    ],
)
def test_p2_p8_a_row_that_no_task_reports_is_no_version_and_leaves_no_file(
    numbers: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    alter: Callable[[Report], None],
    words: str,
) -> None:
    def write_and_alter(rows: DataFrame, job: WritingJob) -> Report:
        report = write_parts(rows, job)
        alter(report)
        return report

    monkeypatch.setattr(making, "write_parts", write_and_alter)
    new_store(tmp_path)
    with pytest.raises(DatasetError, match=f"^rows do not balance, so that nothing is committed: .*{words}"):
        run(parse(numbers, "numbers.yaml"))
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()], "what it wrote is removed"


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_p8_what_fails_after_the_commit_makes_no_failure_of_it(
    numbers: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_tracking_error(*_: object) -> None:
        raise TrackingError("tracking.uri is away")

    monkeypatch.setattr(EtlRun, "finish", raise_tracking_error)
    config = parse(numbers, "numbers.yaml")
    manifest = run(config)
    (version,) = versions(config.dataset.path)
    assert version[1] == manifest
    assert f"{version[0]} is committed; afterwards TrackingError: tracking.uri is away" in caplog.messages
    assert MlflowClient(config.tracking.uri).get_run(manifest.run_id).info.status == "FINISHED"

"""The page about the data of a real ETL: what it warns of, what it shows of hostile values, and that it fits on every screen."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import mlflow
import numpy as np
import pytest
from chromium import GOOD, seen
from mlflow import MlflowClient
from pyspark.sql import SparkSession
from stores import new_store

from pipelines.config import Config, parse
from pipelines.data.versions.data_profile import Files, Survey
from pipelines.data.versions.manifest import Manifest
from pipelines.etl.run import run
from pipelines.report.data_profile import profile_files

ROWS = 3_000
HOSTILE = "<script>alert(1)</script>"


def pipeline(folder: Path, uri: str, name: str = "planted") -> Config:
    """A table in which everything is planted that the page can warn of, except skew."""
    random = np.random.default_rng(3)
    lines = []
    for number in range(ROWS):
        split = ("train", "train", "train", "validation", "test")[number % 5]
        rich = random.random() < 0.3
        paid = f"{random.normal(900 if rich else 100, 20):.2f}"
        drifted = "" if random.random() < 0.1 else f"{random.normal(1.5 if split == 'validation' else 0, 1):.4f}"
        twin = number - 1 if number % 25 == 3 else number  # a row of validation that has the text and size of one of train
        text = ("  A Film, number %d!" if twin < number else "a film number %d") % twin
        size = np.random.default_rng(twin).random()
        city = random.choice(["Ulm", "Bonn", HOSTILE, '"&amp;', "x" * 300])
        age = 400 if number % 100 == 7 else random.integers(18, 90)
        lines.append("\t".join(map(str, (number, split, str(rich).lower(), paid, drifted, text, size, city, age, "always"))))
    (folder / "raw.tsv").write_text("\n".join(lines) + "\n")
    columns = "id int, split string, rich boolean, paid double, drifted double, text string, size double, city string, age int, only string"
    features = {
        "text": {"encoder": "sequence", "length": 5},
        "size": "standardize",
    }
    more = {"paid": "standardize", "drifted": {"encoder": "standardize", "impute": "mean"}, "city": "vocabulary", "age": "standardize"}
    options = {"sep": "\t", "quote": ""}
    hashed = {"only": {"encoder": "hash", "buckets": 7}}
    values = {
        "name": name,
        "source": {
            "tables": {"rows": {"format": "csv", "path": str(folder / "raw.tsv"), "schema": columns, "options": options}},
            "query": "SELECT * FROM rows -- </pre>",
            "expect": {"plausible age": "age <= 120"},
            "max_quarantined": 0.05,
        },
        "dataset": {
            "path": str(folder / name),
            "key": ["id"],
            "split": {"by": "split", "validation": 0},
            "features": features if name == "twins" else {**features, **more, **hashed},
            "target": {"rich": "binary"},
        },
        "task": {"kind": "tabular"},
        "tracking": {"uri": uri},
    }
    return parse(values, "t")


@dataclass(frozen=True)
class DataPage:
    manifest: Manifest
    html: str
    description: dict
    metrics: dict[str, float]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return new_store(tmp_path_factory.mktemp("tracking"))


@pytest.fixture(scope="module")
def data_page(tmp_path_factory: pytest.TempPathFactory, uri: str, spark: SparkSession) -> DataPage:
    manifest = run(pipeline(tmp_path_factory.mktemp("planted"), uri), profile_files)
    run_in_mlflow = MlflowClient(uri).get_run(manifest.run_id)
    page, description = (mlflow.artifacts.load_text(f"{run_in_mlflow.info.artifact_uri}/{name}") for name in ("data.html", "data.json"))
    return DataPage(manifest, page, json.loads(description), run_in_mlflow.data.metrics)


def test_the_page_warns_of_what_was_planted_and_of_nothing_else(data_page: DataPage) -> None:
    findings = {(finding["kind"], *finding["columns"]) for finding in data_page.description["findings"]}
    warnings = findings - {("skew",)}  # of Spark's tasks, whose seconds depend on what else the machine does
    assert warnings == {("leak", "paid"), ("constant", "only"), ("drift", "drifted")}


@pytest.mark.full
def test_rows_that_are_alike_are_found_though_they_are_written_otherwise(tmp_path: Path, uri: str, spark: SparkSession) -> None:
    manifest = run(pipeline(tmp_path, uri, "twins"), profile_files)
    artifacts = MlflowClient(uri).get_run(manifest.run_id).info.artifact_uri
    (finding,) = json.loads(mlflow.artifacts.load_text(f"{artifacts}/data.json"))["findings"]
    twins = [line for line in (tmp_path / "raw.tsv").read_text().splitlines() if "A Film" in line and "\tvalidation\t" in line]
    assert finding["kind"] == "shared" and f"({len(twins)} of {manifest.splits['validation'].rows} sampled rows)" in finding["text"]


def test_all_rows_are_accounted_for(data_page: DataPage) -> None:
    description = data_page.description
    assert sum(description["rows"].values()) + sum(reason["rows"] for reason in description["refused"]) == ROWS
    assert description["refused"][0]["reason"] == "plausible age" and '"age": 400' in description["refused"][0]["record"]
    assert description["sources"][0]["listed"][0]["checksum"].startswith("sha256:")
    columns = {column["name"]: column for column in description["columns"]}
    missing = columns["drifted"]["missing"]
    assert all(0.05 < values["share"] < 0.15 for values in missing.values()) and len(missing) == 3
    for name in ("rich", "city", "only"):
        chart = columns[name]["chart"]
        assert chart["sampled"] == {} and all(sum(shares) == pytest.approx(1, abs=1e-4) for shares in chart["shares"].values())


def test_target_shares_are_those_of_all_rows(data_page: DataPage, tmp_path: Path, uri: str) -> None:
    """And not those of the sample, which has fewer rows than the splits of this table."""
    pipeline(tmp_path, uri)
    rows = [line.split("\t") for line in (tmp_path / "raw.tsv").read_text().splitlines()]
    chart = next(column for column in data_page.description["columns"] if column["name"] == "rich")["chart"]
    for split, shares in chart["shares"].items():
        rich = [row[2] == "true" for row in rows if row[1] == split and int(row[8]) <= 120]
        assert shares[chart["names"].index("true")] == pytest.approx(sum(rich) / len(rich), abs=1e-5)


def test_spark_tells_seconds_spill_and_skew_of_the_stages(data_page: DataPage) -> None:
    assert {stage["stage"] for stage in data_page.description["spark"]} >= {"read", "fit", "write"}
    for stage in data_page.description["spark"]:
        assert stage["tasks"] > 0 and stage["longest_seconds"] >= stage["median_seconds"] >= 0 and stage["skew"] >= 1
    assert data_page.metrics["spark/fit/task_seconds"] > 0 and data_page.metrics["spark/write/spilled_bytes"] == 0
    assert data_page.metrics["spark/write/skew"] >= 1


def test_values_from_the_data_stay_text(data_page: DataPage) -> None:
    assert HOSTILE not in data_page.html and "&lt;script&gt;alert(1)" in data_page.html and "&lt;/pre&gt;" in data_page.html


def test_a_browser_shows_it_without_a_complaint_or_a_request_and_it_fits(data_page: DataPage, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(data_page.html)
    assert seen(tmp_path / "page.html") == GOOD
    assert len(data_page.html) < 5e6


@pytest.mark.full
def test_a_page_that_cannot_be_drawn_fails_nothing(
    data_page: DataPage, tmp_path: Path, uri: str, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_to_draw(survey: Survey) -> Files:
        raise ZeroDivisionError("planted")

    with caplog.at_level(logging.WARNING, "pipelines"):
        manifest = run(pipeline(tmp_path, uri), fail_to_draw)
    assert manifest.digest == data_page.manifest.digest, "what is shown of the rows does not change them"
    assert MlflowClient(uri).get_run(manifest.run_id).info.status == "FINISHED"
    assert [record.getMessage() for record in caplog.records if "planted" in record.getMessage()] == [
        f"{tmp_path}/planted/{manifest.version} is committed; afterwards ZeroDivisionError: planted"
    ]

"""One ETL in hostile environments gives one version with one digest. `make chaos ARGS="--cases environments"` tries each separately."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from environments import ENVIRONMENTS, run_etl, together, write_pipeline, write_raw
from pyspark.sql import SparkSession
from stores import new_store

from pipelines.config import load
from pipelines.etl.run import run

COMBINED = (
    ("Turkish", "other time zones", "Latin-1", "settings in spark-defaults"),
    ("no locale", "more settings, and ANSI off by a variable", "hash seed and optimized Python", "one core"),
    ("old names of months", "Lithuanian, by spark-submit"),
)
"""Of all ten, in as few processes as tell them apart."""


@pytest.fixture(scope="module")
def plain_version(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Path, str, dict[str, Any]]:
    """The raw tables, a store, and the version that the tests' session makes."""
    folder = tmp_path_factory.mktemp("here")
    write_raw(folder)
    uri = new_store(folder)
    manifest = run(load(write_pipeline(folder, folder, uri)))
    rows = {split: summary.rows for split, summary in manifest.splits.items()}
    return folder, uri, {"version": manifest.version, "digest": manifest.digest, "quarantined": manifest.quarantined, "rows": rows}


def test_every_environment_is_in_one_process() -> None:
    assert sorted(name for names in COMBINED for name in names) == sorted(ENVIRONMENTS) and len(ENVIRONMENTS) == 10


@pytest.mark.parametrize("names", [COMBINED[0], *(pytest.param(names, marks=pytest.mark.full) for names in COMBINED[1:])], ids=" + ".join)
def test_p6_hostile_environments_make_one_digest(
    tmp_path: Path, plain_version: tuple[Path, str, dict[str, Any]], names: tuple[str, ...]
) -> None:
    raw, uri, expected = plain_version
    assert run_etl(together(*names), tmp_path, raw, uri) == expected


@pytest.mark.full
def test_p6_executors_in_hostile_environments_make_one_digest(tmp_path: Path, plain_version: tuple[Path, str, dict[str, Any]]) -> None:
    """They are processes of their own, each with a Java that starts in that environment."""
    raw, uri, expected = plain_version
    environment = replace(together(*COMBINED[0], "no locale", "hash seed and optimized Python"), master="local-cluster[2,1,1024]")
    assert run_etl(environment, tmp_path, raw, uri, timeout_seconds=580) == expected

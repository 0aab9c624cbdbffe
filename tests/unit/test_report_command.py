"""Pages of `jobs/report.py` for each kind of run, and its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from stores import new_store

from pipelines.config import Config
from pipelines.errors import ConfigError, LockstepError, TrackingError
from pipelines.report.arguments import read_arguments
from pipelines.report.command import report_page

VALUES: dict[str, Any] = {
    "name": "t",
    "source": {"tables": {"a": {"format": "parquet", "path": "a"}}},
    "dataset": {"path": "data", "features": {"x": "identity"}, "target": {"label": "binary"}},
    "task": {"kind": "tabular"},
}
KINDS = {"etl": "etl", "folds": "cross-validation", "other": "other"}
TAGS = {**{name: {"mlflow.lockstep.kind": kind} for name, kind in KINDS.items()}, "none": {}, "training": {"mlflow.lockstep.identity": "1"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """The address, and a run of each kind; `drawn` is an ETL whose page was drawn."""
    folder = tmp_path_factory.mktemp("runs")
    uri = new_store(folder)
    client = MlflowClient(uri)
    experiment = client.create_experiment("toys", artifact_location=(folder / "artifacts").as_uri())
    run_ids = {name: client.create_run(experiment, tags=tags).info.run_id for name, tags in {**TAGS, "drawn": TAGS["etl"]}.items()}
    client.log_text(run_ids["drawn"], "<h1>the data</h1>", "data.html")
    return uri, run_ids


def test_the_page_of_an_etl_is_the_page_about_its_data(runs: tuple[str, dict[str, str]]) -> None:
    uri, run_ids = runs
    assert report_page(uri, (run_ids["drawn"],)) == "<h1>the data</h1>"
    assert "What was trained" in report_page(uri, (run_ids["training"],))


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        (["etl"], TrackingError, "is an ETL without data.html: it ended before its page was drawn; name another run"),
        (["training", "drawn"], ConfigError, "is an ETL, and only trainings and baselines are compared; leave it out"),
        (["training", "folds"], ConfigError, "is a cross-validation, and only trainings and baselines are compared; leave it out"),
        (["other"], ConfigError, "is other, which has no page; name a training, a baseline, an ETL, a cross-validation or a search"),
        (["none"], ConfigError, "is none of Lockstep, which has no page"),
        (["training", "training"], ConfigError, "stands twice, and is not compared with itself; name each run once"),
        (["absent"], TrackingError, "has no run absent"),
    ],
)
def test_a_run_without_a_page_is_refused(
    runs: tuple[str, dict[str, str]], names: list[str], kind: type[LockstepError], message: str
) -> None:
    uri, run_ids = runs
    with pytest.raises(kind, match=message):
        report_page(uri, tuple(run_ids.get(name, name) for name in names))


def test_a_config_beside_runs_is_where_mlflow_is_and_alone_its_newest_run(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(json.dumps({**VALUES, "tracking": {"uri": "http://a"}}))
    arguments = read_arguments("report", [str(file), "b", "c", "--output", "page.html"])
    assert (arguments.uri, arguments.runs, arguments.file) == ("http://a", ("b", "c"), Path("page.html"))
    (run,) = read_arguments("report", [str(file)]).runs
    assert isinstance(run, Config) and run.experiment == VALUES["name"]

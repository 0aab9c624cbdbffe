"""The page of a cross-validation: mean and deviation of every metric over the folds, and the training of each fold."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.data.versions.manifest import Folds
from pipelines.report.charts import line_chart
from pipelines.report.fold_metrics import FoldMetrics, describe_mean, split_values
from pipelines.report.rendering import Code, Facts, Figure, Note, PageTable, readable, render
from pipelines.report.run_page import duration
from pipelines.tracking.cross_validation_run import FoldTraining, read_fold_trainings
from pipelines.tracking.history import download, history

_SPLITS = ("test", "validation")


@dataclass(frozen=True)
class SplitResults:
    """The metrics of one split over the folds."""

    split: str
    table: PageTable
    charts: list[Figure]


def folds_page(uri: str, run_id: str) -> str:
    """The page of the run that holds the trainings of all folds. Raises TrackingError if MLflow cannot be reached."""
    run, trainings = history(uri, run_id), read_fold_trainings(uri, run_id)
    config, folds = _read_files(uri, run_id)
    metrics = {training.fold: training.metrics for training in trainings if training.metrics}
    test_values = split_values(metrics, "test")
    state = Note(f"All {folds.trainings} trainings are finished.", "good")
    if len(metrics) < folds.trainings or not folds.trainings:
        state = Note(f"{len(metrics)} of {folds.trainings} trainings are finished; the same command trains the others.", "warning")
    dataset = config.get("dataset", {})
    data_facts: Facts = [
        ("dataset", dataset.get("path", "?")),
        ("digest of its rows", Code(run.tags.get("dataset.digest", "?"))),
        ("split", json.dumps(dataset.get("split", {}))),
        *((f"rows of each fold, column {column}", ", ".join(f"{rows:,}" for rows in counts)) for column, counts in folds.rows.items()),
    ]
    return render(
        "folds.html",
        title=run.name,
        lead=f"run {run.run_id} of experiment {run.experiment}: a cross-validation",
        state=state,
        headline=[(name, describe_mean(values)) for name, values in test_values.items()],
        results=[results for split in _SPLITS if (results := _split_results(metrics, split))],
        trainings=[_training_row(training, [*test_values]) for training in trainings],
        data_facts=data_facts,
        config=json.dumps(config, indent=1, ensure_ascii=False),
    )


def _read_files(uri: str, run_id: str) -> tuple[dict[str, dict[str, object]], Folds]:
    """The config and the folds; empty where the run has no such file."""
    with TemporaryDirectory() as name:
        download(uri, run_id, Path(name), ("config.json", "manifest.json"))
        config, manifest = (
            json.loads(file.read_bytes()) if (file := Path(name) / base).exists() else {} for base in ("config.json", "manifest.json")
        )
    return config, Folds.model_validate(manifest.get("folds") or {"rows": {}})


def _split_results(metrics: FoldMetrics, split: str) -> SplitResults | None:
    """A table and a chart for each metric of the split; None if it has none."""
    by_name = split_values(metrics, split)
    if not by_name:
        return None
    rows = [[name, describe_mean(values), min(values), max(values), f"{len(values)} of {len(metrics)}"] for name, values in by_name.items()]
    charts = [
        Figure(line_chart({name: [(fold, values[name]) for fold, values in sorted(metrics.items()) if name in values]}, "fold", name))
        for name in by_name
    ]
    return SplitResults(split, PageTable(["metric", "mean ± deviation", "least", "most", "defined in"], rows), charts)


def _training_row(training: FoldTraining, test_names: Sequence[str]) -> list[object]:
    values = {name: readable(training.metrics[name]) if name in training.metrics else "undefined" for name in test_names}
    tests = ", ".join(f"{name.removeprefix('test/')} {value}" for name, value in values.items()) if training.metrics else None
    seconds = None if training.seconds is None else duration(training.seconds)
    return [training.fold, Code(training.run_id), training.status, seconds, tests]

"""The figures' table: what counts as reached, and what is kept of it."""

import json
from pathlib import Path

import pytest
import yaml

from benchmarks.conf import figures
from pipelines.config import load

ROOT = Path(__file__).parents[2]
WITHOUT = {"python_code", "gpt_10m", "gpt2", "resnet50", "cifar10"}
"""Their text is that of installed packages, of whatever version, or their pictures are not among the data."""
FOUND = {"test/accuracy": 0.91, "test/rmse": 0.9, "etl seconds": 20.0, "train seconds": 100.0, "waits": 0.001}


def test_every_pipeline_has_a_figure() -> None:
    for figure in figures.FIGURES:
        path = ROOT / f"conf/{figure.config}.yaml"
        if path.exists():
            load(
                path,
                {flag.removeprefix("--"): yaml.safe_load(value) for flag, value in zip(figure.flags[::2], figure.flags[1::2], strict=True)},
            )
    assert {path.stem for path in (ROOT / "conf").glob("*.yaml")} - WITHOUT <= {figure.config for figure in figures.FIGURES}


@pytest.mark.parametrize(
    ("metric", "target", "highest", "more", "reached"),
    [
        ("test/accuracy", 0.9, True, {}, "yes"),
        ("test/accuracy", 0.92, True, {}, "NO"),
        ("test/rmse", 0.9, False, {}, "yes"),
        ("test/rmse", 0.89, False, {}, "NO"),
        ("test/accuracy", 0.9, True, {"train seconds": 301.0}, "NO"),
        ("test/accuracy", 0.9, True, {"baseline": 0.92}, "NO"),
        ("test/accuracy", 0.9, True, {"baseline": 0.85}, "yes"),
    ],
)
def test_a_figure_is_reached_in_time_and_ahead_of_the_baseline(
    metric: str, target: float, highest: bool, more: dict[str, float], reached: str
) -> None:
    figure = figures.Figure("trec", metric, target, highest)
    assert figures.make_row(figure, {**FOUND, **more})["reached it"] == reached


def test_a_row_takes_the_place_of_its_older_one(tmp_path: Path) -> None:
    path = tmp_path / "results" / "figures.json"
    trec, digits = figures.Figure("trec", "test/accuracy", 0.9), figures.Figure("digits", "test/accuracy", 0.9)
    for figure, accuracy in ((trec, 0.5), (digits, 0.97), (trec, 0.91)):
        figures.save_row(figures.make_row(figure, {**FOUND, "test/accuracy": accuracy}), path)
    rows = json.loads(path.read_text())["rows"]
    assert [(row["config"], row["reached"]) for row in rows] == [("digits", 0.97), ("trec", 0.91)]
    assert all(row["date"] and row["machine"]["cores"] for row in rows)

"""`train.parallel: {replan: true}` on a real Ray: a run whose plan was wrong changes its workers, and keeps its rows and its model."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from trainings import open_dataset, training

from pipelines import api
from pipelines.config import Config
from pipelines.launch import layout_watch
from pipelines.launch.layout_plan import LayoutPlan
from pipelines.planner import at_hand
from pipelines.planning.candidates import PlanCandidate
from pipelines.planning.replanning import find_change
from pipelines.train.checkpoint.run_directory import ATTEMPTS, RunDirectory

pytestmark = pytest.mark.usefixtures("ray_cluster", "one_thread")


def slow_training(folder: Path, **changes: Any) -> Config:
    """Of some seconds, so that its steps are measured several times."""
    return training(folder, rows=30_000, global_batch=64, shards=4, strategy="exact", epochs=10, lr=0.001, **changes)


def mistaken_plan(config: Config, first_workers: int, replans: bool) -> LayoutPlan:
    """Plan to begin with so many workers; steps of other numbers are really expected to take next to nothing."""
    choose = at_hand.choose_layout
    counts = [1, 2]
    plans = [choose(_override(config, workers=number, parallel="auto"), open_dataset(config)) for number in counts]
    candidates: list[PlanCandidate] = [plan.candidates[0] for plan in plans]
    parts = ("matmul_seconds", "elementwise_seconds", "optimizer_seconds", "communication_seconds")
    scaled = [
        candidate
        if candidate.layout.workers == first_workers
        else replace(candidate, step=replace(candidate.step, **{part: 1e-9 * getattr(candidate.step, part) for part in parts}))
        for candidate in candidates
    ]
    return LayoutPlan(sorted(scaled, key=lambda candidate: candidate.layout.workers != first_workers), plans[0].place, replans)


def _override(config: Config, **train: Any) -> Config:
    values = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return type(config).model_validate({**values, "train": {**values["train"], **train}})


@pytest.mark.parametrize("first_workers", [2, pytest.param(1, marks=pytest.mark.full)])
def test_a_run_goes_on_in_the_better_layout_to_the_same_weights(
    first_workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = slow_training(tmp_path, workers=1)
    plan = mistaken_plan(config, first_workers, replans=True)
    monkeypatch.setattr(at_hand, "choose_layout", lambda config, version: plan)
    monkeypatch.setattr(layout_watch, "READINGS", 1)
    monkeypatch.setattr(layout_watch, "find_change", lambda *arguments: find_change(*arguments[:3], 10**9, 0.0))
    result = api.train(_override(config, parallel={"replan": True}))
    lines = capsys.readouterr().out
    saved = re.findall(r"saved after step ([\d,]+); the run goes on with (\d) worker", lines)
    (folder,) = (file.parent for file in tmp_path.glob("**/heartbeats"))
    attempts = (RunDirectory(str(folder)).get_json(ATTEMPTS) or {})["attempts"]
    workers = [attempt["workers"] for attempt in attempts]
    assert workers in ([first_workers, 3 - first_workers], [first_workers, 3 - first_workers, first_workers]), "it may come back, once"
    assert [int(count) for _, count in saved] == workers[1:]
    ends = [attempt["steps"] for attempt in attempts[:-1]]
    assert ends == [attempt["step"] for attempt in attempts[1:]], "no step is lost or taken twice"
    assert ends == [int(step.replace(",", "")) for step, _ in saved]
    tags = MlflowClient(config.tracking.uri).get_run(result.run_id).data.tags
    assert tags["plan.layout"].startswith(f"{workers[-1]} worker") and float(tags["measured.step_seconds"]) > 0
    assert result.model_digest == api.train(_override(config, workers=first_workers)).model_digest

"""Pipelines of pictures over generated files, trained in one process: what the slices of masks and boxes share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slices import train_and_log
from stores import new_store

from pipelines.config import Config, load
from pipelines.data.versions.manifest import Manifest
from pipelines.tasks.details import EvaluationData
from pipelines.train.run_context import Hooks, Trained
from pipelines.train.strategy import Strategy

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Slice:
    config: Config
    manifest: Manifest
    result: Trained
    strategy: Strategy
    evaluation: EvaluationData
    """Of the test split."""
    run_id: str
    model: str


class KeepingHooks(Hooks):
    def __init__(self) -> None:
        self.evaluations: dict[str, EvaluationData] = {}

    def keep_evaluation(self, evaluation: EvaluationData) -> None:
        self.evaluations[evaluation.split] = evaluation


def fit(name: str, folder: Path, tables: Mapping[str, str], flags: Mapping[str, Any]) -> Slice:
    """Make a dataset of conf/<name>.yaml and train its model, with everything in `folder`, where `tables` have their files."""
    places = {"dataset.path": str(folder / "data"), "tracking.uri": new_store(folder), "train.storage": str(folder / "runs")}
    places |= {f"source.tables.{table}.path": str(folder / path) for table, path in tables.items()}
    places |= {"export.path": str(folder / "exports")}
    small = {"train.workers": 1, "train.precision": "fp32"}
    config = load(ROOT / f"conf/{name}.yaml", {**places, **small, "source.max_quarantined": 0.2, **flags})
    hooks = KeepingHooks()
    manifest, result, strategy, run_id, model = train_and_log(config, folder, hooks)
    return Slice(config, manifest, result, strategy, hooks.evaluations["test"], run_id, model)

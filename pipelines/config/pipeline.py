"""The whole pipeline's config, and which part of it decides the model."""

import json
import re
from hashlib import sha256
from typing import Any

from pydantic import Field, model_validator

from pipelines.config.dataset import Dataset
from pipelines.config.options import SECRETS_ELSEWHERE
from pipelines.config.section import Section
from pipelines.config.source import Source
from pipelines.config.task import TaskSettings
from pipelines.config.tracking import Tracking
from pipelines.config.train import Train

# Settings of `train` that decide where and how it runs; never which rows make a step, nor, under `exact` on one kind of
# processor, what comes out.
PLACEMENT = frozenset(
    {"workers", "use_gpu", "cpus_per_worker", "max_failures", "resize_seconds", "timeout_seconds"}
    | {"storage", "checkpoint", "cache_bytes", "prefetch_bytes"}
)

_LOGIN = re.compile(r"://[^/@\s]*:[^/@\s]+@|[?&;](?:[\w.]*(?:password|secret|token)[\w.]*)=", re.IGNORECASE)


class Config(Section):
    """One YAML file: raw tables to a tracked model."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """Of the pipeline, its MLflow experiment and its runs."""
    source: Source
    dataset: Dataset
    task: TaskSettings
    train: Train = Train()
    tracking: Tracking = Field(default_factory=Tracking)

    @model_validator(mode="after")
    def _holds_no_secret(self) -> "Config":
        """A config is logged, shown and kept with the dataset. Errors of the whole do not repeat the value."""
        paths = {f"source.tables.{name}.path": path for name, table in self.source.tables.items() for path in table.paths}
        places = {"tracking.uri": self.tracking.uri, "dataset.path": self.dataset.path, "train.storage": self.train.storage, **paths}
        if found := [key for key, value in places.items() if _LOGIN.search(value)]:
            raise ValueError(f"{', '.join(found)}: holds a password, which would be shown wherever a run is; {SECRETS_ELSEWHERE}")
        return self

    @property
    def experiment(self) -> str:
        return self.tracking.experiment or self.name

    @property
    def data_identity(self) -> dict[str, Any]:
        """What of the config decides a dataset version: all of `source` and `dataset` but paths, for which checksums stand."""
        paths: Any = {"source": {"tables": {"__all__": {"path"}}}, "dataset": {"path"}}
        return self.model_dump(mode="json", include={"source", "dataset"}, exclude=paths)

    @property
    def model_identity(self) -> str:
        """Hex digest of what decides the model, the dataset's digest apart: `task`, and `train` without placement."""
        placement: Any = {"train": PLACEMENT}
        decisive = self.model_dump(mode="json", include={"task": True, "train": True}, exclude=placement)
        return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

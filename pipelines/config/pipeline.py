"""The whole pipeline's config, and which part of it decides the model."""

import json
import re
from hashlib import sha256
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from pipelines.config.dataset import Dataset
from pipelines.config.secrets import ELSEWHERE, secrets_in
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


def _named(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", name):
        raise ValueError("must have 1 to 100 letters of ASCII, digits, _, . and -, the first a letter or digit")
    return name


class Config(Section):
    """One YAML file: raw tables to a tracked model."""

    name: Annotated[str, AfterValidator(_named)]
    """Of the pipeline, its MLflow experiment and its runs."""
    source: Source
    """Raw tables, the query over them, and what its rows must satisfy."""
    dataset: Dataset
    """Where versions go, how rows are split, and how columns are encoded."""
    task: TaskSettings
    """What is learned."""
    train: Train = Train()
    """How the model is fitted, on how many workers."""
    tracking: Tracking = Field(default_factory=Tracking)
    """Where MLflow keeps the results."""

    @model_validator(mode="after")
    def _holds_no_secret(self) -> "Config":
        """A config is logged, shown and kept with the dataset. Errors of the whole do not repeat the value."""
        sql: Any = {"source": {"query", "expect"}}
        if found := list(secrets_in(self.model_dump(mode="json", by_alias=True, exclude=sql))):
            raise ValueError(f"{', '.join(found)}: holds a password or a token, {ELSEWHERE}")
        return self

    @property
    def experiment(self) -> str:
        return self.tracking.experiment or self.name

    @property
    def data_identity(self) -> dict[str, Any]:
        """What of the config decides a dataset version: all of `source` and `dataset` but paths, for which checksums stand.

        What rows hold of a path, `etl.identity` adds.
        """
        paths: Any = {"source": {"tables": {"__all__": {"path"}}}, "dataset": {"path"}}
        return self.model_dump(mode="json", include={"source", "dataset"}, exclude=paths)

    @property
    def model_identity(self) -> str:
        """Hex digest of what decides the model, the dataset's digest apart: `task`, and `train` without placement."""
        placement: Any = {"train": PLACEMENT}
        decisive = self.model_dump(mode="json", include={"task": True, "train": True}, exclude=placement)
        return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

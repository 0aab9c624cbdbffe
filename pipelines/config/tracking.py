"""`tracking`: where MLflow stores the results."""

import os
import re
from typing import Annotated

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveFloat

from pipelines.config.section import Section, Text

EXPERIMENT_CHARACTERS = 200
"""MLflow's tables take a few more, and name a folder in which files have names as well."""

TAG_CHARACTERS = 250
"""Of the name of a tag in MLflow."""


def _check_experiment(name: str) -> str:
    if len(name.encode()) > EXPERIMENT_CHARACTERS:
        raise ValueError(f"has {len(name.encode())} bytes, and an experiment's name at most {EXPERIMENT_CHARACTERS}; shorten it")
    if name != name.strip() or not name.isprintable():
        raise ValueError("begins or ends with a blank, or has a control character; remove it")
    if wrong := [part for part in name.removeprefix("/").split("/") if name and part in ("", ".", "..")]:
        raise ValueError(f"has the part {wrong[0]!r} between slashes, as a path would; remove it")
    return name


def _check_tags(tags: dict[str, str]) -> dict[str, str]:
    for name in tags:
        if len(name) > TAG_CHARACTERS or not re.fullmatch(r"[\w .:/-]+", name):
            raise ValueError(
                f"has the tag {name!r}, but a name has 1 to {TAG_CHARACTERS} letters, digits, blanks, . _ : - and /; rename it"
            )
        if name.startswith("..") or not {"", ".", ".."}.isdisjoint(name.split("/")):
            raise ValueError(f"has the tag {name!r}, whose parts between slashes are empty or dots, as in a path; remove them")
    return tags


class Tracking(Section):
    """Address of MLflow, and experiment and tags of a run."""

    uri: Text = Field(default_factory=lambda: os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db")
    """Address of a server, or an SQLite file for a single machine; by default MLFLOW_TRACKING_URI, or else sqlite:///mlflow.db."""
    experiment: Annotated[str, AfterValidator(_check_experiment)] = ""
    """MLflow experiment, such as adult, team/adult or Databricks' /Shared/adult; by default, the name of the pipeline."""
    run_name: str = ""
    """Name of the runs in MLflow; by default, such as `ddp lr=0.003 · churn · 2026-11-25 21:04`."""
    tags: Annotated[dict[str, str], AfterValidator(_check_tags)] = {}
    """Tags to set on every run, in addition to those that record its origin."""
    log_every_seconds: PositiveFloat = 5.0
    """Interval in seconds at which training metrics are sent, in batches."""
    data_samples: NonNegativeInt = 5
    """Rows, and pictures or sounds, that an ETL's page about the data shows of what was read, besides a record for each reason of refusal;
    0 for a page without any, as to share it."""

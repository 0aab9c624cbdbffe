"""`tracking`: where MLflow stores the results."""

import os

from pydantic import Field, PositiveFloat

from pipelines.config.section import Section, Text


class Tracking(Section):
    """Address of MLflow, and experiment and tags of a run."""

    uri: Text = Field(default_factory=lambda: os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db")
    """Address of a server, or an SQLite file for a single machine; by default MLFLOW_TRACKING_URI, or else sqlite:///mlflow.db."""
    experiment: str = ""
    """MLflow experiment; by default, the name of the pipeline."""
    run_name: str = ""
    """Name of the runs in MLflow; by default, such as `churn 2026-11-25 21:04 ddp lr=0.003`."""
    tags: dict[str, str] = {}
    """Tags to set on every run, in addition to those that record its origin."""
    log_every_seconds: PositiveFloat = 5.0
    """Interval in seconds at which training metrics are sent, in batches."""

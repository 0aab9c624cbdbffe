"""`tracking`: where MLflow keeps the results."""

import os

from pydantic import Field, PositiveFloat

from pipelines.config.section import Section, Text


class Tracking(Section):
    """MLflow's address and how the run is filed there."""

    uri: Text = Field(default_factory=lambda: os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db")
    """A server's address, or an SQLite file for a single machine; by default what MLFLOW_TRACKING_URI says."""
    experiment: str = ""
    """By default the pipeline's name."""
    tags: dict[str, str] = {}
    """Set on every run, beside those that say where it comes from."""
    log_every_seconds: PositiveFloat = 5.0
    """Training metrics are sent in batches, this often."""

"""The assignment that the driver gives to every worker. The driver need not import what a worker runs."""

from dataclasses import dataclass
from typing import Any

from pipelines.data.versions.versions import Version
from pipelines.runtime.imports import import_modules

PACKAGES = ("mlflow", "numpy", "pyarrow", "pydantic", "ray", "torch", "torchmetrics")
"""Packages whose versions affect the model, or the protocols between machines."""


@dataclass(frozen=True)
class Assignment:
    """The driver's input to every worker."""

    config: dict[str, Any]
    """As plain values, since the class of a config with a user's own task is created when the config is parsed."""
    version: Version
    run_id: str
    directory: str
    driver_host: str
    installed_versions: dict[str, str]
    """The driver's versions."""
    pause_epoch: int | None = None
    """Epochs after which the run stops, to be continued by another command; None for those of the config, and the test."""
    backend: str = ""
    """That of the process group which a worker makes for itself, if it has no others; empty where Ray Train makes one."""


def work(settings: dict[str, Any]) -> dict[str, Any]:
    """Ray Train's training function, as `worker.train_on_worker`: imported on the worker."""
    import_modules(["pipelines.launch.worker"])
    from pipelines.launch.worker import train_on_worker

    return train_on_worker(settings)

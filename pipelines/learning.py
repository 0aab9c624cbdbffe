"""Binds a task to the columns of a dataset; training and the served model build the same task here."""

import numpy as np

from pipelines.config import TaskSettings
from pipelines.config.plugins import imported
from pipelines.dataset.manifest import Manifest
from pipelines.errors import ConfigError
from pipelines.features import restored
from pipelines.features.base import Packer
from pipelines.tasks.base import Data, Task


def task_of(settings: TaskSettings, manifest: Manifest) -> Task:
    """The task that `settings` configure, over the manifest's columns. Raises ConfigError if its class cannot be imported."""
    try:
        implementation = imported(settings.implementation, Task, "a task")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"task.kind is {settings.kind!r}, whose {error}") from error
    return implementation(settings, data_of(manifest))


def data_of(manifest: Manifest) -> Data:
    """What a task may know about a dataset version before it reads rows."""
    predicted = next((column for column in manifest.columns if column.role == "target"), manifest.columns[0])
    encoder = restored(manifest.encoders[predicted.name])
    tokens = encoder.tokens if isinstance(encoder, Packer) else ()
    columns = tuple(column for column in manifest.columns if column.role != "carried")
    carried = tuple(column for column in manifest.columns if column.role == "carried")

    def raw(name: str, values: np.ndarray) -> np.ndarray:
        return restored(manifest.encoders[name]).decode(values)

    def names(name: str) -> list[str]:
        fitted = manifest.encoders[name]
        return restored(fitted).names(fitted.column.cardinality or 0)

    return Data(columns, encoder.classes, encoder.class_counts, encoder.decode, tokens, manifest.encoders, carried, raw, names)

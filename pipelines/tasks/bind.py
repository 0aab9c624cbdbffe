"""Binds a task to the columns of a dataset; training and the served model build the same task here."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipelines.config import Config, TaskSettings
from pipelines.config.dataset import Dataset
from pipelines.config.plugins import import_class, is_class_path
from pipelines.data.features import restore_encoder
from pipelines.data.features.base import Packer
from pipelines.data.features.encoding import implementation
from pipelines.data.versions.manifest import FittedEncoder, Manifest, tensor_columns
from pipelines.errors import ConfigError
from pipelines.tasks.base import Data, Task


def build_task(settings: TaskSettings, manifest: Manifest) -> Task:
    """Build the task that `settings` configure, over the manifest's columns. Raises ConfigError if its class cannot be imported."""
    try:
        task_class = import_class(settings.implementation, Task, "a task")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"task.kind is {settings.kind!r}, whose {error}") from error
    return task_class(settings, task_data(manifest.encoders))


def check_task(config: Config) -> None:
    """Raise ConfigError, before any row is read, if the task does not fit the columns that the settings of encoders describe.

    A task or an encoder of the user's own passes, since it may ask for anything. A dataset version is checked again, with the facts that
    only its rows decide.
    """
    weights = config.task.class_weights
    encoders = placeholder_encoders(config.dataset, len(weights) if isinstance(weights, tuple) and weights else 3)
    if encoders is None or is_class_path(config.task.kind):
        return
    task = import_class(config.task.implementation, Task, "a task")(config.task, task_data(encoders))  # type: ignore[type-abstract]
    task.choose_monitor(config.train.monitor)
    task.details()


def task_data(encoders: Mapping[str, FittedEncoder]) -> Data:
    """The facts of a dataset version that a task knows before it reads rows."""
    all_columns = tensor_columns(encoders)
    target = next((column for column in all_columns if column.role == "target"), all_columns[0])
    encoder = restore_encoder(encoders[target.name])
    tokens = encoder.tokens if isinstance(encoder, Packer) else ()
    columns = tuple(column for column in all_columns if column.role != "carried")
    carried = tuple(column for column in all_columns if column.role == "carried")

    def raw(name: str, values: np.ndarray) -> np.ndarray:
        return restore_encoder(encoders[name]).decode(values)

    def names(name: str) -> list[str]:
        fitted = encoders[name]
        return restore_encoder(fitted).names(fitted.column.cardinality or 0)

    return Data(columns, encoder.classes, encoder.class_counts, encoder.decode, tokens, encoders, carried, raw, names)


_STATE: dict[str, Any] = {
    "impute": None, "dtype": "float32", "mean": 0.0, "deviation": 1.0, "minimum": 0.0, "span": 1.0, "edges": [0.0], "points": [0.0, 1.0],
    "deviates": [0.0, 1.0], "values": ["a"], "words": ["a"], "characters": "a", "merges": [],
}  # fmt: skip
"""Every encoder's state, with the fewest values: the settings do not tell the sizes of vocabularies."""


def placeholder_encoders(dataset: Dataset, classes: int) -> dict[str, FittedEncoder] | None:
    """Encoders with the shapes and kinds of their columns, but made-up states, as if every label had so many `classes`.

    None if one of them is a user's own, whose state is unknown.
    """
    if any(is_class_path(settings.encoder) for settings in dataset.encoders.values()):
        return None
    encoders = {}
    for name, settings in dataset.encoders.items():
        names = ["false", "true"] if settings.encoder == "binary" else [str(number) for number in range(classes)]
        state = {**_STATE, "classes": names, "counts": [1] * len(names)}
        column = implementation(settings)(settings, state).column(name, dataset.column_role(name))
        encoders[name] = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=settings.inputs(name), state=state, column=column)
    return encoders

"""Binds a task to the columns of a dataset; training and the served model build the same task here."""

from collections.abc import Mapping

import numpy as np

from pipelines.config import Config, TaskSettings
from pipelines.config.plugins import import_class, is_class_path
from pipelines.config.tasks.functions import FunctionSettings
from pipelines.data.features import restore_encoder
from pipelines.data.features.base import Packer
from pipelines.data.features.encoding import placeholder_encoders
from pipelines.data.versions.manifest import FittedEncoder, Manifest, tensor_columns
from pipelines.errors import ConfigError
from pipelines.tasks.base import Data, Task
from pipelines.tasks.network_function import load_function


def build_task(settings: TaskSettings, manifest: Manifest, decision: Mapping[str, float] | None = None) -> Task:
    """Build the task that `settings` configure, over the manifest's columns, with the `decision` of a trained model if it has one. Raises
    ConfigError if its class cannot be imported."""
    try:
        task_class = import_class(settings.implementation, Task, "a task")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"task.kind is {settings.kind!r}, whose {error}") from error
    return task_class(settings, task_data(manifest.encoders).without(settings.left_out)).replace_decision(decision or {})


def check_task(config: Config) -> None:
    """Raise ConfigError, before any row is read, if the task does not fit the columns that the settings of encoders describe.

    A task or an encoder of the user's own passes, since it may ask for anything. A dataset version is checked again, with the facts that
    only its rows decide.
    """
    if isinstance(config.task, FunctionSettings):
        load_function(config.task)
    if is_class_path(config.task.kind):
        return
    if (task := placeholder_task(config)) is not None:
        task.choose_monitor(config.train.monitor)
        task.details()


def placeholder_task(config: Config, is_largest: bool = False) -> Task | None:
    """The task of a config over the columns that the settings of encoders describe, with vocabularies that are as small as may be, or as
    large if it `is_largest`; labels have three classes where no setting says how many. None if columns depend on rows."""
    weights = config.task.class_weights
    classes = len(weights) if isinstance(weights, tuple) and weights else 3
    encoders = placeholder_encoders(config.dataset, classes, is_largest)
    if encoders is None:
        return None
    task_class = import_class(config.task.implementation, Task, "a task")  # type: ignore[type-abstract]
    return task_class(config.task, task_data(encoders).without(config.task.left_out))


def task_data(encoders: Mapping[str, FittedEncoder]) -> Data:
    """The facts of a dataset version that a task knows before it reads rows."""
    all_columns = tensor_columns(encoders)
    target = next((column for column in all_columns if column.role == "target"), all_columns[0])
    encoder = restore_encoder(encoders[target.name])
    class_counts = encoders[target.name].class_counts or encoder.class_counts
    tokens, unknown_word = (encoder.tokens, encoder.unknown_word) if isinstance(encoder, Packer) else ((), None)
    columns = tuple(column for column in all_columns if column.role != "carried")
    carried = tuple(column for column in all_columns if column.role == "carried")

    def raw(name: str, values: np.ndarray) -> np.ndarray:
        return restore_encoder(encoders[name]).decode(values)

    def names(name: str) -> list[str]:
        fitted = encoders[name]
        return restore_encoder(fitted).names(fitted.column.cardinality or 0)

    return Data(
        columns=columns,
        classes=encoder.classes,
        class_counts=class_counts,
        decode=encoder.decode,
        tokens=tokens,
        unknown_word=unknown_word,
        encoders=encoders,
        carried=carried,
        raw=raw,
        names=names,
    )

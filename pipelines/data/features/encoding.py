"""Fits encoders from their settings and the statistics of the training split, and restores those of a manifest."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipelines.config.dataset.dataset import Dataset
from pipelines.config.features import ENCODERS, encoder_settings
from pipelines.config.features.base import AutoSettings, EncoderSettings
from pipelines.config.messages.words import name_list, suggestion
from pipelines.config.plugins import import_class, is_class_path
from pipelines.data.features.base import COUNTS, WORDS, Encoder, Input
from pipelines.data.features.row_encoders import RowEncoder, RowEncoders
from pipelines.data.features.statistics import Statistics
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError, MismatchError

ENCODERS_VERSION = 1
"""Part of the identity of a dataset version. Increase it when a change encodes equal settings and statistics differently."""


def needs(dataset: Dataset) -> dict[str, frozenset[str]]:
    """Statistics (names in `statistics`) that fitting needs, by column of the query."""
    needed: dict[str, frozenset[str]] = {}
    for name, settings in dataset.encoders.items():
        for column in settings.inputs(name):
            needed.setdefault(column, frozenset())
        for column in settings.learns_from(name) if not isinstance(settings, AutoSettings) else ():
            needed[column] = needed.get(column, frozenset()) | implementation(settings).needs(settings)
    return needed


def check_columns(dataset: Dataset, schema: pa.Schema) -> None:
    """Check that the query gives the columns that encoders read, with types that they accept; needs no rows. Raises ConfigError with one
    line per error."""
    needed, columns, faults = needs(dataset), set(schema.names), list[str]()
    for name, settings in dataset.encoders.items():
        key, read, learned = _key(dataset, name), settings.inputs(name), settings.learns_from(name)
        for column in dict.fromkeys([*read, *learned]):
            if column not in columns:
                column_list, hint = f"it gives {name_list(schema.names, column)}", suggestion(column, schema.names)
                faults.append(f"{key}: the query gives no column {column}; {f'{hint} ({column_list})' if hint else column_list}")
                continue
            if isinstance(settings, AutoSettings):
                continue
            kind, encoder = schema.field(column).type, implementation(settings)
            refusal = encoder.refusal(settings, kind) if column in read else ""
            learning_refusal = encoder.learning_refusal(settings, kind) if column in learned else ""
            if reason := refusal or learning_refusal:
                faults.append(f"{key}: {settings.encoder} cannot encode column {column}, which is {kind}: {reason}")
            elif {COUNTS, WORDS} <= needed[column] and WORDS in encoder.needs(settings):
                faults.append(
                    f"{key}: {settings.encoder} splits column {column} into words, and another encoder takes whole values; "
                    f"give each its own column, such as {column} AS {column}_whole in the query"
                )
    if faults:
        raise ConfigError("\n".join(faults))


def fit_encoders(dataset: Dataset, statistics: Mapping[str, Statistics], schema: pa.Schema) -> dict[str, FittedEncoder]:
    """Fitted encoders by feature, the target last. `schema` is the schema of the query. Raises ConfigError with one line per error, as
    `check_columns` does, and if the training split has no usable values."""
    check_columns(dataset, schema)
    fitted, faults = {}, []
    for name, settings in dataset.encoders.items():
        inputs = [Input(column, schema.field(column).type, statistics[column]) for column in settings.learns_from(name)]
        encoder = implementation(settings)
        try:
            state = encoder.fit(settings, inputs)
        except ConfigError as error:
            faults.append(f"{_key(dataset, name)}: {error}")
            continue
        column = encoder(settings, state).column(name, dataset.column_role(name))
        fitted[name] = _describe_encoder(name, settings, state, column)
    if faults:
        raise ConfigError("\n".join(faults))
    return fitted


def encoder_notes(encoders: Mapping[str, FittedEncoder]) -> tuple[str, ...]:
    """The notes of fitted encoders, each in a line behind the name of its column."""
    notes = {name: restore_encoder(fitted).note for name, fitted in encoders.items()}
    return tuple(f"{name}: {note}" for name, note in notes.items() if note)


def placeholder_encoders(dataset: Dataset, classes: int, is_largest: bool = False) -> dict[str, FittedEncoder] | None:
    """Encoders with the shapes and kinds of their columns before they are fitted, as if every label had so many `classes`, and with the
    largest vocabularies that settings allow if `is_largest`. None if one of them is a user's own, whose state is unknown, or if the query
    or the rows decide what the columns are."""
    if not dataset.is_resolved or any(is_class_path(settings.encoder) for settings in dataset.encoders.values()):
        return None
    encoders = {}
    for name, settings in dataset.encoders.items():
        encoder = implementation(settings)
        state = encoder.largest_state(settings, classes) if is_largest else encoder.placeholder_state(classes)
        fitted = encoder(settings, state)
        column = fitted.column(name, dataset.column_role(name))
        counts = (1,) * (column.cardinality or 0) if fitted.has_classes_in_values else ()
        encoders[name] = _describe_encoder(name, settings, state, column, counts)
    return encoders


def _describe_encoder(
    name: str, settings: EncoderSettings, state: dict[str, Any], column: TensorColumn, class_counts: tuple[int, ...] = ()
) -> FittedEncoder:
    """The encoder as a manifest has it: of its settings, those that change rows, since the dataset's digest is over them."""
    feature, package = settings.model_dump(mode="json", exclude=set(settings.excluded_from_identity)), ENCODERS.package(settings)
    inputs = settings.inputs(name)
    return FittedEncoder(feature=feature, inputs=inputs, state=state, column=column, package=package, class_counts=class_counts)


def _key(dataset: Dataset, name: str) -> str:
    """Dotted key of the encoder in the YAML file."""
    role = dataset.column_role(name)
    section = {"feature": "features", "carried": "passthrough", "target": "target"}[role]
    return f"dataset.{section}.{name}"


def implementation(settings: EncoderSettings) -> type[Encoder]:
    """The encoder class for these settings. Raises ConfigError if it cannot be imported."""
    try:
        return import_class(settings.implemented_by, Encoder, "an encoder")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"encoder {settings.encoder}: {error}") from error


def restore_encoder(fitted: FittedEncoder) -> Encoder:
    """Build the encoder that a manifest describes, from its settings and state. Raises MismatchError if its package is not installed."""
    name = fitted.feature["encoder"]
    if fitted.package and name not in ENCODERS.by_name:
        raise MismatchError(
            f"encoder {name} is of {fitted.package}, which is not installed here; install that package, or read the rows alone, which are "
            "Parquet files"
        )
    settings = encoder_settings(fitted.feature)
    return implementation(settings)(settings, fitted.state)


class Encoders(RowEncoders):
    """The fitted encoders of a manifest."""

    def __init__(self, encoders: Mapping[str, FittedEncoder]) -> None:
        super().__init__(
            {
                name: RowEncoder(restore_encoder(fitted), fitted.feature["encoder"], fitted.inputs, fitted.column)
                for name, fitted in encoders.items()
            }
        )

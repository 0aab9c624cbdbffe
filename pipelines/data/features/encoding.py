"""Fits encoders from their settings and the statistics of the training split, and applies them to raw rows, in Spark tasks and in the
served model."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.dataset.dataset import Dataset
from pipelines.config.features import encoder_settings
from pipelines.config.features.auto import AutoSettings
from pipelines.config.features.base import EncoderSettings
from pipelines.config.messages.counting import name_list
from pipelines.config.messages.did_you_mean import suggestion
from pipelines.config.plugins import import_class, is_class_path
from pipelines.data.features.base import COUNTS, WORDS, Encoder, Input, Packer
from pipelines.data.features.raw import python_value
from pipelines.data.features.statistics import Statistics
from pipelines.data.features.text import utf8
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.errors import ConfigError, SourceError


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
    """Check that the query gives the columns that encoders read, with types that they accept; needs no rows.

    Raises ConfigError with one line per error.
    """
    if faults := list(_faults(dataset, schema)):
        raise ConfigError("\n".join(faults))


def fit_encoders(dataset: Dataset, statistics: Mapping[str, Statistics], schema: pa.Schema) -> dict[str, FittedEncoder]:
    """Fitted encoders by feature, the target last. `schema` is the schema of the query.

    Raises ConfigError with one line per error, as `check_columns` does, and if the training split has no usable values.
    """
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
        fitted[name] = FittedEncoder(feature=_plain_settings(settings), inputs=settings.inputs(name), state=state, column=column)
    if faults:
        raise ConfigError("\n".join(faults))
    return fitted


def encoder_notes(encoders: Mapping[str, FittedEncoder]) -> tuple[str, ...]:
    """The notes of fitted encoders, each in a line behind the name of its column."""
    notes = {name: restore_encoder(fitted).note for name, fitted in encoders.items()}
    return tuple(f"{name}: {note}" for name, note in notes.items() if note)


def placeholder_encoders(dataset: Dataset, classes: int) -> dict[str, FittedEncoder] | None:
    """Encoders with the shapes and kinds of their columns before they are fitted, as if every label had so many `classes`.

    None if one of them is a user's own, whose state is unknown, or if the query or the rows decide what the columns are.
    """
    if not dataset.is_resolved or any(is_class_path(settings.encoder) for settings in dataset.encoders.values()):
        return None
    encoders = {}
    for name, settings in dataset.encoders.items():
        encoder = implementation(settings)
        state = encoder.placeholder_state(classes)
        fitted = encoder(settings, state)
        column = fitted.column(name, dataset.column_role(name))
        counts = (1,) * (column.cardinality or 0) if fitted.has_classes_in_values else ()
        encoders[name] = FittedEncoder(
            feature=_plain_settings(settings), inputs=settings.inputs(name), state=state, column=column, class_counts=counts
        )
    return encoders


def _plain_settings(settings: EncoderSettings) -> dict[str, Any]:
    """The settings as a manifest has them, whose digest is that of the dataset: those that change rows."""
    return settings.model_dump(mode="json", exclude=set(settings.excluded_from_identity))


def _faults(dataset: Dataset, schema: pa.Schema) -> Iterator[str]:
    needed, columns = needs(dataset), set(schema.names)
    for name, settings in dataset.encoders.items():
        for column in dict.fromkeys([*settings.inputs(name), *settings.learns_from(name)]):
            if column not in columns:
                column_list = f"it gives {name_list(schema.names, column)}"
                hint = suggestion(column, schema.names)
                yield f"{_key(dataset, name)}: the query gives no column {column}; {f'{hint} ({column_list})' if hint else column_list}"
                continue
            if isinstance(settings, AutoSettings):
                continue
            kind = schema.field(column).type
            encoder = implementation(settings)
            refusal = encoder.refusal(settings, kind) if column in settings.inputs(name) else ""
            learning_refusal = encoder.learning_refusal(settings, kind) if column in settings.learns_from(name) else ""
            if reason := refusal or learning_refusal:
                yield f"{_key(dataset, name)}: {settings.encoder} cannot encode column {column}, which is {kind}: {reason}"
            elif {COUNTS, WORDS} <= needed[column] and WORDS in encoder.needs(settings):
                yield (
                    f"{_key(dataset, name)}: {settings.encoder} splits column {column} into words, and another encoder takes whole values; "
                    f"give each its own column, such as {column} AS {column}_whole in the query"
                )


def _key(dataset: Dataset, name: str) -> str:
    """Dotted key of the encoder in the YAML file."""
    role = dataset.column_role(name)
    section = {"feature": "features", "carried": "passthrough", "target": "target"}[role]
    return f"dataset.{section}.{name}"


ENCODERS_VERSION = 1
"""Part of the identity of a dataset version. Increase it when a change encodes equal settings and statistics differently."""

_SHOWN_CHARACTERS = 40
_CANNOT = " cannot encode "
_VALUE = r"(?:[\d,]+ bytes|NULL|\[[-\[\]\d., +naifeNone]*…?)"
_BYTES_WITH_FAULT = re.compile(rf"(?:{_VALUE}|\w+ {_VALUE}(?:, \w+ {_VALUE})+)(: .+)", re.DOTALL)
_NUMBER_OF_A_ROW = re.compile(r"\d(?:[\d.,x]*\d)?(?![^\[]*\])")
"""A number that is not in brackets, where the settings stand."""


def implementation(settings: EncoderSettings) -> type[Encoder]:
    """The encoder class for these settings. Raises ConfigError if it cannot be imported."""
    try:
        return import_class(settings.implemented_by, Encoder, "an encoder")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"encoder {settings.encoder}: {error}") from error


def restore_encoder(fitted: FittedEncoder) -> Encoder:
    """Build the encoder that a manifest describes, from its settings and state."""
    settings = encoder_settings(fitted.feature)
    return implementation(settings)(settings, fitted.state)


class Encoders:
    """Fitted encoders that can encode any number of tables."""

    def __init__(self, encoders: Mapping[str, FittedEncoder]) -> None:
        self._encoders = {name: (fitted, restore_encoder(fitted)) for name, fitted in encoders.items()}
        self.schema = pa.schema([encoder.field(name, fitted.column.role) for name, (fitted, encoder) in self._encoders.items()])
        self.packer = next((encoder for _, encoder in self._encoders.values() if isinstance(encoder, Packer)), None)
        """The encoder that packs documents, if there is one; `encode` then gives lists, which its `windows` cuts into windows."""
        self.counted = tuple(fitted.column for fitted, encoder in self._encoders.values() if encoder.has_classes_in_values)
        """The columns whose classes are counted in encoded values."""

    def encode(self, raw: pa.Table) -> tuple[pa.Table, pa.Array]:
        """The columns of `schema` for the rows that all encoders accept, and for each raw row the reason why it was refused, or NULL.

        Raises SourceError if a column is missing.
        """
        outputs: list[pa.Array] = []
        reasons = pa.nulls(len(raw), pa.string())
        raw_columns = set(raw.column_names)
        for name, (fitted, encoder) in self._encoders.items():
            if missing := [column for column in fitted.inputs if column not in raw_columns]:
                raise SourceError(
                    f"{name} is encoded from {name_list(missing)}; the rows have only {name_list(raw.column_names, missing[0])}"
                )
            inputs = [_array(raw.column(column)) for column in fitted.inputs]
            prefix = f"{name}: {fitted.feature['encoder']}{_CANNOT}"
            invalid = [utf8.find_invalid(values) for values in inputs]
            readable = [values if rows is None else utf8.null_rows(values, rows) for values, rows in zip(inputs, invalid, strict=True)]
            output = encoder.encode(*readable)
            for values, rows in zip(inputs, invalid, strict=True):
                if rows is not None:
                    output, reasons = utf8.null_rows(output, rows), _add_invalid(reasons, values, rows, prefix)
            if output.null_count:
                reasons = _add_reasons(reasons, output, prefix, fitted.inputs, inputs, encoder.fault)
            outputs.append(output)
        accepted = pc.is_null(reasons)
        accepted_outputs = outputs if reasons.null_count == len(raw) else [output.filter(accepted) for output in outputs]
        return pa.Table.from_arrays(accepted_outputs, schema=self.schema), reasons


def refusal_kind(reason: str) -> str:
    """A reason from `Encoders.encode` without the value, for counting; any other reason as it is."""
    encoder, cannot, value = reason.partition(_CANNOT)
    if not cannot:
        return reason
    fault = _BYTES_WITH_FAULT.fullmatch(value)
    reason_of_all = _NUMBER_OF_A_ROW.sub("…", fault[1]) if fault else ""
    return f"{encoder}{_CANNOT}{'NULL' if value.endswith('NULL') else 'a value'}{reason_of_all}"


def _array(column: pa.ChunkedArray) -> pa.Array:
    """The column of a table as one array, without a copy if it has one chunk."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _add_reasons(
    reasons: pa.Array, output: pa.Array, prefix: str, names: tuple[str, ...], inputs: list[pa.Array], fault: Callable[..., str]
) -> pa.Array:
    """Add a reason for each row that this output refuses and that has no reason yet."""
    words = reasons.to_pylist()
    for row in np.flatnonzero(pc.and_(pc.is_null(output), pc.is_null(reasons)).to_numpy(zero_copy_only=False)):
        raw = [python_value(column[int(row)]) for column in inputs]
        values = {name: _short(value) for name, value in zip(names, raw, strict=True)}
        words[row] = prefix + (", ".join(f"{name} {value}" for name, value in values.items()) if len(values) > 1 else values[names[0]])
        words[row] += f": {why}" if (why := fault(*raw)) else ""
    return pa.array(words, pa.string())


def _add_invalid(reasons: pa.Array, values: pa.Array, rows: np.ndarray, prefix: str) -> pa.Array:
    """Add a reason for each of the `rows`, whose text is not UTF-8, that has no reason yet."""
    words = reasons.to_pylist()
    for row in np.flatnonzero(rows):
        words[row] = words[row] or f"{prefix}{utf8.count_bytes(values[int(row)]):,} bytes: {utf8.FAULT}"
    return pa.array(words, pa.string())


def _short(value: object) -> str:
    text = "NULL" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
    if not text:
        return "empty text"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

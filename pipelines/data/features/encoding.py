"""Applies fitted encoders to raw rows, in Spark tasks and in the served model."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config import features as config
from pipelines.config.did_you_mean import name_list
from pipelines.config.plugins import import_class
from pipelines.data.features.base import Encoder, Packer
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.errors import ConfigError, SourceError

ENCODERS_VERSION = 1
"""Part of the identity of a dataset version. Increase it when a change encodes equal settings and statistics differently."""

_SHOWN_CHARACTERS = 40
_CANNOT = " cannot encode "


def implementation(settings: config.EncoderSettings) -> type[Encoder]:
    """The encoder class for these settings. Raises ConfigError if it cannot be imported."""
    try:
        return import_class(settings.implemented_by, Encoder, "an encoder")  # type: ignore[type-abstract]
    except ValueError as error:
        raise ConfigError(f"encoder {settings.encoder}: {error}") from error


def restore_encoder(fitted: FittedEncoder) -> Encoder:
    """Build the encoder that a manifest describes, from its settings and state."""
    settings = config.encoder_settings(fitted.feature)
    return implementation(settings)(settings, fitted.state)


class Encoders:
    """Fitted encoders that can encode any number of tables."""

    def __init__(self, encoders: Mapping[str, FittedEncoder]) -> None:
        self._encoders = {name: (fitted, restore_encoder(fitted)) for name, fitted in encoders.items()}
        self.schema = pa.schema([encoder.field(name, fitted.column.role) for name, (fitted, encoder) in self._encoders.items()])
        self.packer = next((encoder for _, encoder in self._encoders.values() if isinstance(encoder, Packer)), None)
        """The encoder that packs documents, if there is one; `encode` then gives lists, which its `windows` cuts into windows."""

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
            output = encoder.encode(*inputs)
            if output.null_count:
                reasons = _add_reasons(reasons, output, f"{name}: {fitted.feature['encoder']}{_CANNOT}", fitted.inputs, inputs)
            outputs.append(output)
        accepted = pc.is_null(reasons)
        accepted_outputs = outputs if reasons.null_count == len(raw) else [output.filter(accepted) for output in outputs]
        return pa.Table.from_arrays(accepted_outputs, schema=self.schema), reasons


def refusal_kind(reason: str) -> str:
    """A reason from `Encoders.encode` without the value, for counting; any other reason as it is."""
    encoder, cannot, value = reason.partition(_CANNOT)
    if not cannot:
        return reason
    return f"{encoder}{_CANNOT}{'NULL' if value.endswith('NULL') else 'a value'}"


def _array(column: pa.ChunkedArray) -> pa.Array:
    """The column of a table as one array, without a copy if it has one chunk."""
    combine_moments = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return combine_moments.dictionary_decode() if pa.types.is_dictionary(combine_moments.type) else combine_moments


def _add_reasons(reasons: pa.Array, output: pa.Array, prefix: str, names: tuple[str, ...], inputs: list[pa.Array]) -> pa.Array:
    """Add a reason for each row that this output refuses and that has no reason yet."""
    words = reasons.to_pylist()
    for row in np.flatnonzero(pc.and_(pc.is_null(output), pc.is_null(reasons)).to_numpy(zero_copy_only=False)):
        values = {name: _short(column[int(row)].as_py()) for name, column in zip(names, inputs, strict=True)}
        words[row] = prefix + (", ".join(f"{name} {value}" for name, value in values.items()) if len(values) > 1 else values[names[0]])
    return pa.array(words, pa.string())


def _short(value: object) -> str:
    text = "NULL" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
    if not text:
        return "empty text"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

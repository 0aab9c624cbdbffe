"""Applies fitted encoders to raw rows, in Spark tasks, in the served model and in exported folders: it needs Arrow and NumPy alone."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.messages.words import name_list
from pipelines.data.features.base import Encoder, Packer
from pipelines.data.features.raw import find_invalid, is_list, null_rows, python_value
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import SourceError

_SHOWN_CHARACTERS = 40
_CANNOT = " cannot encode "
_VALUE = r"(?:[\d,]+ bytes|NULL|\[[-\[\]\d., +naifeNone]*…?)"
_BYTES_WITH_FAULT = re.compile(rf"(?:{_VALUE}|\w+ {_VALUE}(?:, \w+ {_VALUE})+)(: .+)", re.DOTALL)
_NUMBER_OF_A_ROW = re.compile(r"\d(?:[\d.,x]*\d)?(?![^\[]*\])")
"""A number that is not in brackets, where the settings stand."""


class RowEncoder(NamedTuple):
    """A fitted encoder of a column, with what a manifest says of it."""

    encoder: Encoder
    kind: str
    """`encoder` of its settings."""
    inputs: tuple[str, ...]
    """The query's columns it reads."""
    column: TensorColumn


class RowEncoders:
    """Fitted encoders, by column, that can encode any number of tables."""

    def __init__(self, encoders: Mapping[str, RowEncoder]) -> None:
        self._encoders = dict(encoders)
        self.schema = pa.schema([fitted.encoder.field(name, fitted.column.role) for name, fitted in encoders.items()])
        self.packer = next((fitted.encoder for fitted in encoders.values() if isinstance(fitted.encoder, Packer)), None)
        """The encoder that packs documents, if there is one; `encode` then gives lists, which its `windows` cuts into windows."""
        self.counted = tuple(fitted.column for fitted in encoders.values() if fitted.encoder.has_classes_in_values)
        """The columns whose classes are counted in encoded values."""

    def encode(self, raw: pa.Table) -> tuple[pa.Table, pa.Array]:
        """The columns of `schema` for the rows that all encoders accept, and for each raw row the reason why it was refused, or NULL.
        Raises SourceError if a column is missing."""
        outputs: list[pa.Array] = []
        reasons = pa.nulls(len(raw), pa.string())
        raw_columns = set(raw.column_names)
        for name, fitted in self._encoders.items():
            if missing := [column for column in fitted.inputs if column not in raw_columns]:
                raise SourceError(
                    f"{name} is encoded from {name_list(missing)}; the rows have only {name_list(raw.column_names, missing[0])}"
                )
            inputs = [_array(raw.column(column)) for column in fitted.inputs]
            prefix = f"{name}: {fitted.kind}{_CANNOT}"
            invalid = [find_invalid(values) for values in inputs]
            readable = [values if rows is None else null_rows(values, rows) for values, rows in zip(inputs, invalid, strict=True)]
            output = fitted.encoder.encode(*readable)
            for values, rows in zip(inputs, invalid, strict=True):
                if rows is not None:
                    output, reasons = null_rows(output, rows), _add_invalid(reasons, values, rows, prefix)
            if output.null_count:
                reasons = _add_reasons(reasons, output, prefix, fitted.inputs, inputs, fitted.encoder.fault)
            outputs.append(output)
        accepted = pc.is_null(reasons)
        accepted_outputs = outputs if reasons.null_count == len(raw) else [output.filter(accepted) for output in outputs]
        return pa.Table.from_arrays(accepted_outputs, schema=self.schema), reasons


def refusal_kind(reason: str) -> str:
    """A reason from `RowEncoders.encode` without the value, for counting; any other reason as it is."""
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
        value = values[int(row)]
        texts = value.values if is_list(value.type) else pa.array([value])
        size = sum(len(text or b"") for text in texts.cast(pa.large_binary()).to_pylist())
        words[row] = words[row] or f"{prefix}{size:,} bytes: it is no Unicode text"
    return pa.array(words, pa.string())


def _short(value: object) -> str:
    text = "NULL" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else str(value)
    if not text:
        return "empty text"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

"""Avro files, read record by record with fastavro: the columns of a file's own schema, and its records as batches of Arrow.

Dates and times are read as the numbers that the file has, since a value beyond Python's years would end the reading of the file.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Any
from uuid import UUID

import pyarrow as pa

from pipelines.config.messages.words import name_list
from pipelines.data.sources.cell_files import local_file
from pipelines.errors import ConfigError, SourceError
from pipelines.runtime.compat.fastavro import times_as_numbers

_ROWS_PER_BATCH = 5_000
_MOST_DIGITS = 38
"""Of a decimal of Spark."""
_PLAIN = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(), "bytes": pa.binary(),
    "string": pa.string(), "fixed": pa.binary(), "enum": pa.string(), "null": pa.null(),
}  # fmt: skip
_LOGICAL = {
    "date": pa.date32(), "time-millis": pa.time32("ms"), "time-micros": pa.time64("us"), "uuid": pa.string(),
    "timestamp-millis": pa.timestamp("ms", "UTC"), "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"), "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"), "local-timestamp-nanos": pa.timestamp("ns"),
}  # fmt: skip
_WIDER = ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()), (pa.int32(), pa.float64()))
"""Pairs of types of which the second holds every value of the first."""


@dataclass(frozen=True)
class RecordReader:
    """Reads the records of a file."""

    def schema(self, path: str) -> pa.Schema:
        with local_file(path) as local, _open_file(path, local) as records:
            return pa.schema(_fields(path, records.writer_schema))

    def batches(self, path: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with local_file(path) as local, _open_file(path, local) as records, times_as_numbers():
            kinds = {field.name: field.type for field in _fields(path, records.writer_schema)}
            while rows := list(islice(records, _ROWS_PER_BATCH)):
                arrays = [_to_array(path, name, [row[name] for row in rows], kinds[name]) for name in names]
                yield pa.record_batch(arrays, names=list(names))


def check_fastavro(place: str) -> None:
    """Raises ConfigError, about what is at `place` of the config or the file system, unless fastavro is installed."""
    if find_spec("fastavro") is None:
        raise ConfigError(f"{place}: Avro needs fastavro, which is not installed; pip install 'lockstep-pipelines[avro]'")


@contextmanager
def _open_file(path: str, local: str) -> Iterator[Any]:
    """The records of an open file. Raises SourceError if it is no Avro, is cut, or has a codec that is not installed."""
    from fastavro import reader  # noqa: PLC0415, only who reads Avro has it installed

    try:
        with open(local, "rb") as stream:
            yield reader(stream)
    except (ValueError, EOFError, TypeError, KeyError, IndexError, OSError, zlib.error) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        remedy = "install the package of its codec" if "codec" in reason else "it is cut, damaged or of another format: get it again"
        raise SourceError(f"{path} cannot be read as Avro ({reason}); {remedy}") from error


def _fields(path: str, schema: Any) -> list[pa.Field]:
    """The columns of a file whose values are records."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SourceError(f"{path} has values of the type {schema}, and no records, so it has no columns; write records")
    kind = _arrow_kind(schema, {}, path, "")
    return [kind.field(number) for number in range(kind.num_fields)]


def _arrow_kind(schema: Any, named: dict[str, pa.DataType | None], path: str, place: str) -> pa.DataType:
    """The type of Arrow for a type of Avro. `named` are those that were defined before; None while one is being defined."""
    if isinstance(schema, list):
        return _union_kind([inner for inner in schema if inner != "null"], named, path, place)
    if isinstance(schema, str) or isinstance(schema["type"], dict | list):
        inner = schema if isinstance(schema, str) else schema["type"]
        if not isinstance(inner, str):
            return _arrow_kind(inner, named, path, place)
        if inner in named and named[inner] is None:
            raise SourceError(f"{path}: column {place} is a {inner} inside of itself, which no table has; write it as a text of JSON")
        return named.get(inner) or _PLAIN[inner]
    name, kind = schema.get("name", ""), schema["type"]
    named |= {name: None} if kind == "record" else {}
    arrow = _complex_kind(schema, named, path, place)
    named |= {name: arrow} if name else {}
    return arrow


def _complex_kind(schema: Mapping[str, Any], named: dict[str, pa.DataType | None], path: str, place: str) -> pa.DataType:
    logical = schema.get("logicalType", "")
    match schema["type"]:
        case "record":
            inner = [(field["name"], _arrow_kind(field["type"], named, path, place or field["name"])) for field in schema["fields"]]
            return pa.struct(inner)
        case "array":
            return pa.list_(_arrow_kind(schema["items"], named, path, place))
        case "map":
            return pa.map_(pa.string(), _arrow_kind(schema["values"], named, path, place))
        case _ if logical == "decimal" and schema["precision"] <= _MOST_DIGITS:
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        case _ if logical in ("decimal", "duration"):
            raise SourceError(f"{path}: column {place} is a {logical} that Spark does not have; write it as a text or a number")
        case str(plain) if plain not in _PLAIN:
            return named.get(plain) or _arrow_kind(plain, named, path, place)
        case str(plain):
            return _LOGICAL.get(logical, _PLAIN[plain])
    raise SourceError(f"{path}: column {place} is of the type {schema['type']}, which Avro does not have; write the file again")


def _union_kind(kinds: Sequence[Any], named: dict[str, pa.DataType | None], path: str, place: str) -> pa.DataType:
    """Of a type and null, that type; of two numbers, the wider one."""
    arrow = [_arrow_kind(kind, named, path, place) for kind in kinds] or [pa.null()]
    wide = next((kind for kind in arrow if all(kind == other or (other, kind) in _WIDER for other in arrow)), None)
    if wide is None:
        names = name_list([str(kind) for kind in arrow])
        raise SourceError(f"{path}: column {place} is one of {names}, which no column is; write them as columns of their own")
    return wide


def _to_array(path: str, name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array([str(value) if isinstance(value, UUID) else value for value in values], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"{path}: column {name} cannot be read as {kind}: {error}; write its records again") from error

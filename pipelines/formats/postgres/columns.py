"""How each type of PostgreSQL becomes one of Spark, and which of its values have no place there.

The server itself sends NULL for a value that fits no column, and says why: infinite dates, NaN in a decimal, arrays of other dimensions.
A numeric with a precision is a decimal of the same. One without it is the nearest double, as in other formats; but a whole number that no
double is equal to is refused, since two identifiers could become one. Types without a counterpart are the text that COPY writes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as T

from pipelines.config.messages.words import name_list
from pipelines.data.sources.text.parsed import RESERVED
from pipelines.errors import SourceError
from pipelines.formats.postgres.address import quote_postgres_name

_PLAIN: Mapping[str, T.DataType] = {
    "int2": T.ShortType(),
    "int4": T.IntegerType(),
    "int8": T.LongType(),
    "float4": T.FloatType(),
    "float8": T.DoubleType(),
    "bool": T.BooleanType(),
    "bytea": T.BinaryType(),
    "text": T.StringType(),
    "varchar": T.StringType(),
    "bpchar": T.StringType(),
    "name": T.StringType(),
    "date": T.DateType(),
    "timestamp": T.TimestampNTZType(),
    "timestamptz": T.TimestampType(),
}
"""Types that ADBC gives as they are, by PostgreSQL's names."""
_INTEGERS, _MOMENTS = ("int2", "int4", "int8"), ("date", "timestamp", "timestamptz")
WATERMARKS = (*_INTEGERS, *_MOMENTS)
_MOST_DIGITS = 38
"""Of a decimal of Spark."""
_IS_NAN = "({0} = 'NaN')"
"""Of a numeric with a precision, which cannot be infinite."""
_FITS_NO_DOUBLE = (
    "(CASE WHEN {0} IN ('NaN', 'Infinity', '-Infinity', 0) THEN false WHEN abs({0}) NOT BETWEEN 1e-307 AND 1e308 THEN true "
    "WHEN scale({0}) > 0 AND trunc({0}) <> {0} THEN false ELSE {0}::float8::text::numeric <> {0} END)"
)


@dataclass(frozen=True)
class Column:
    """A column of a relation."""

    name: str
    type_name: str
    """PostgreSQL's."""
    kind: T.DataType
    """Spark's."""
    value: str
    """SQL of what the server sends, if it has no fault."""
    fault: str = ""
    """SQL of whether the value fits no `kind`; empty if each does. NULL for NULL."""
    reason: str = ""
    """What such a value is."""
    dimensions: int = 0
    """Of an array."""

    @property
    def problem(self) -> str:
        return f"{self.name} is {self.reason}, not {self.kind.simpleString()}"

    @property
    def identifier(self) -> str:
        return quote_postgres_name(self.name)

    @property
    def sent_lengths(self) -> list[str]:
        """SQL of the lengths of an array's dimensions, if there are several: ADBC flattens it."""
        return [f"coalesce(array_length({self.identifier}, {number + 1}), 0)" for number in range(self.dimensions)][
            : self.dimensions * (self.dimensions > 1)
        ]


def relation_columns(place: str, schema: pa.Schema, dimensions: Mapping[str, int]) -> list[Column]:
    """The columns of a relation, whose `schema` ADBC gives. `dimensions` are the declared ones of a table's arrays. Raises SourceError for
    names that Spark cannot tell apart, and for a type that has no text of its own."""
    lower = Counter(name.lower() for name in schema.names)
    if equal := [name for name in schema.names if lower[name.lower()] > 1]:
        raise SourceError(f"{place} has columns {name_list(equal)}, which Spark takes for one; name them apart by AS in a query")
    if reserved := sorted(lower.keys() & RESERVED):
        raise SourceError(f"{place} has the column {reserved[0]}, a name that is taken; name it otherwise by AS in a query")
    return [_column(place, field, dimensions.get(field.name, 1)) for field in schema]


def fault_number(columns: Sequence[Column]) -> str:
    """SQL of the number of a row's first column with a fault; NULL if it has none. Empty if no column can have a fault."""
    cases = [f"WHEN {column.fault} THEN {number}" for number, column in enumerate(columns) if column.fault]
    return f"CASE {' '.join(cases)} END" if cases else ""


def row_text(columns: Sequence[Column]) -> str:
    """SQL of the text of a row, which differs if a value does."""
    # COLLATE, since the hash of a text in some collations is one of its sort key.
    return f'ROW({", ".join(column.identifier for column in columns)})::text COLLATE "C"'


def _column(place: str, field: pa.Field, dimensions: int) -> Column:
    metadata = field.metadata or {}
    type_name, identifier = metadata.get(b"POSTGRESQL:type", b"").decode(), quote_postgres_name(field.name)
    if type_name in ("money", "_money"):
        raise SourceError(
            f"{place}: column {field.name} is money, whose text depends on the server's language; CAST it to numeric(19,2) in a query"
        )
    if pa.types.is_list(field.type) and (element := (field.type.value_field.metadata or {}).get(b"POSTGRESQL:type", b"").decode()):
        return _array(field.name, element, dimensions)
    if type_name == "numeric":
        return _numeric(field.name, int(metadata.get(b"POSTGRESQL:typmod", b"-1")))
    if type_name == "oid":
        return Column(field.name, type_name, T.LongType(), f"{identifier}::bigint")
    if type_name not in _PLAIN:
        # Not a CAST, which gives some types another text than COPY: an address of inet its mask.
        return Column(field.name, type_name, T.StringType(), f"CASE num_nonnulls({identifier}) WHEN 1 THEN concat({identifier}) END")
    fault, reason = _fault(type_name, identifier)
    return Column(field.name, type_name, _PLAIN[type_name], identifier, fault, reason)


def _fault(type_name: str, value: str) -> tuple[str, str]:
    """SQL of whether a value fits no type of Spark, and what it is then."""
    if type_name in _MOMENTS:
        # Years of BC and those of five digits, which neither Python nor other readers of the version have.
        outside = (
            f"{value} NOT BETWEEN '0001-01-01' AND '9999-12-31'"
            if type_name == "date"
            else f"{value} < '0001-01-01' OR {value} >= '10000-01-01'"
        )
        return f"(NOT isfinite({value}) OR {outside})", "infinite, or outside of the years 1 to 9999"
    if type_name == "numeric":
        return _FITS_NO_DOUBLE.format(value), "a whole number that no double is equal to, or out of range"
    return "", ""


def _numeric(name: str, modifier: int) -> Column:
    """A modifier is precision and scale, which has eleven bits and a sign; -1 if there are none."""
    identifier = quote_postgres_name(name)
    precision, scale = (modifier - 4) >> 16, ((modifier - 4) & 0x7FF ^ 0x400) - 0x400
    digits = max(precision - min(scale, 0), scale)
    if modifier >= 0 and digits <= _MOST_DIGITS:
        # As text: of the binary form, the driver makes the same text, in four times the time.
        kind = T.DecimalType(digits, max(scale, 0))
        return Column(name, "numeric", kind, f"{identifier}::text", _IS_NAN.format(identifier), "NaN")
    fault, reason = _fault("numeric", identifier)
    return Column(name, "numeric", T.DoubleType(), f"{identifier}::float8", fault, reason)


def _array(name: str, element: str, dimensions: int) -> Column:
    identifier = quote_postgres_name(name)
    element_fault, reason = _fault(element, "element")
    cast = "" if element in _PLAIN else "::float8[]" if element == "numeric" else "::text[]"
    # Slices begin at 1, and ADBC refuses arrays that begin at another number than 0 or 1.
    value = f"({identifier}{cast}){'[:]' * dimensions}"
    kind = T.DoubleType() if element == "numeric" else _PLAIN.get(element, T.StringType())
    for _ in range(dimensions):
        kind = T.ArrayType(kind)
    fault = f"array_ndims({identifier}) <> {dimensions}"
    reason = f"an array that has not {dimensions} dimensions{f', or has an element that is {reason}' if reason else ''}"
    if element_fault:
        fault = f"{fault} OR EXISTS (SELECT FROM unnest({identifier}) AS elements(element) WHERE {element_fault})"
    return Column(name, f"_{element}", kind, value, f"({fault})", reason, dimensions)

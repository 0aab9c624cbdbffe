"""Reads the keys of rows to erase, and hashes them as ETL has hashed those of its rows.

The hash depends on the types that the key's columns have in a version. That of whole numbers, texts, dates and booleans is computed here;
that of other types Spark computes, which takes seconds to start.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.types as types

from pipelines.config.messages.words import name_list
from pipelines.data.features.raw import record_value
from pipelines.data.versions.row_keys import hash_key_values
from pipelines.errors import ConfigError

Key = Mapping[str, str]
"""The value of each column of a key, as the command has it."""
_COLUMN = re.compile(r"(?:^|,)\s*([^=,]+?)\s*=")
_DAYS_TO_1970 = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class HashedKey:
    """A key in the types that its columns have in a version."""

    hash: int
    """Signed, of 64 bits, as `row_keys` has it."""
    record: dict[str, Any]
    """The values as they stand in records of the quarantine."""


def parse_keys(texts: Sequence[str], columns: Sequence[str]) -> list[Key]:
    """The keys that `id=17` or `customer=17,day=2026-01-01` name, without repetitions. A value may contain commas, and equals signs unless
    the text before one is a column of the key. Raises ConfigError unless each key has every one of the columns, and no other."""
    if not columns:
        raise ConfigError("dataset.key is empty, so that no row can be found by its key; erase with a config whose dataset has a key")
    keys: dict[str, Key] = {}
    for text in texts:
        key = _split(text, columns)
        if {*key} != {*columns}:
            raise ConfigError(
                f"--key {text}: a key that the dataset does not declare; dataset.key is {name_list(columns)}, so give "
                f"--key {','.join(f'{name}=VALUE' for name in columns)}"
            )
        keys[repr(sorted(key.items()))] = key
    return list(keys.values())


def _split(text: str, columns: Sequence[str]) -> Key:
    """The values by column, empty if the text does not begin with a column. With one column, all that follows is its value."""
    if len(columns) == 1:
        name, equals, value = text.partition("=")
        return {name.strip(): value} if equals else {}
    starts = [match for match in _COLUMN.finditer(text) if match[1] in columns]
    if not starts or starts[0].start() or len({match[1] for match in starts}) < len(starts):
        return {}
    ends = [*(match.start() for match in starts[1:]), len(text)]
    return {match[1]: text[match.end() : end] for match, end in zip(starts, ends, strict=True)}


def hash_keys(keys: Sequence[Key], schema: pa.Schema, application: str) -> list[HashedKey | ConfigError]:
    """Each key in the types of `schema`, which has their columns in the order of `dataset.key`; an error for one that is none of them.
    `application` is the name of a session of Spark, if one is needed."""
    try:
        return [_hash_plain_key(key, schema) for key in keys]
    except NotImplementedError:
        from pipelines.lifecycle.erasure.spark_hashes import hash_by_spark  # noqa: PLC0415 - Spark takes a second to import

        return hash_by_spark(keys, schema, application)


def _hash_plain_key(key: Key, schema: pa.Schema) -> HashedKey | ConfigError:
    """Raises NotImplementedError for a type whose values and hashes only Spark knows."""
    try:
        values = [_plain_value(field, key[field.name]) for field in schema]
    except ConfigError as error:
        return error
    total = hash_key_values([_bytes_to_hash(field.type, value) for field, value in zip(schema, values, strict=True)])
    return HashedKey(total, {field.name: record_value(value) for field, value in zip(schema, values, strict=True)})


def refuse_value(name: str, text: str, kind: object) -> ConfigError:
    return ConfigError(f"--key {name}={text}: {name} is {kind}, and {text!r} is no such value; give it as the query of the dataset does")


def _plain_value(field: pa.Field, text: str) -> Any:
    """The value of a text. Raises NotImplementedError for a type whose values and hashes only Spark knows, ConfigError for another text."""
    kind = field.type
    if types.is_string(kind) or types.is_large_string(kind):
        return text
    try:
        if types.is_signed_integer(kind) and re.fullmatch(r"\s*[+-]?\d+\s*", text, re.ASCII):
            return pa.scalar(int(text), kind).as_py()
        if types.is_boolean(kind) and text.strip().lower() in ("true", "false"):
            return text.strip().lower() == "true"
        if types.is_date32(kind) and re.fullmatch(r"\s*\d{4}-\d\d-\d\d\s*", text, re.ASCII):
            return date.fromisoformat(text.strip())
    except (ValueError, OverflowError, pa.ArrowException):
        raise refuse_value(field.name, text, kind) from None
    if types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_date32(kind):
        raise refuse_value(field.name, text, kind)
    raise NotImplementedError(str(kind))


def _bytes_to_hash(kind: pa.DataType, value: Any) -> bytes:
    """The bytes of a value that Spark's xxhash64 takes."""
    if isinstance(value, str):
        return value.encode()
    number = value.toordinal() - _DAYS_TO_1970 if isinstance(value, date) else int(value)
    return number.to_bytes(8 if types.is_int64(kind) else 4, "little", signed=True)

"""Hashes keys of any type with Spark, by the same expression as ETL."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pipelines.data.features.raw import python_rows, record_value
from pipelines.errors import ConfigError
from pipelines.etl.splits.split_assignment import ROW, add_identity, exact_column
from pipelines.lifecycle.erasure.erased_keys import HashedKey, Key, refuse_value
from pipelines.spark.session import session

_NUMBER = "__number"


def hash_by_spark(keys: Sequence[Key], schema: pa.Schema, application: str) -> list[HashedKey | ConfigError]:
    """As `erased_keys.hash_keys`. The values are cast to the types of the schema in the time zone of ETL."""
    spark, names = session(application), tuple(schema.names)
    texts = [(number, *(key[name] for name in names)) for number, key in enumerate(keys)]
    columns = ", ".join(f"`{name.replace('`', '``')}` string" for name in names)
    rows = spark.createDataFrame(texts, f"{_NUMBER} int, {columns}")
    casts = {field.name: exact_column(field.name).try_cast(field.dataType) for field in from_arrow_schema(schema)}
    hashed = add_identity(rows.select(_NUMBER, *(cast.alias(name) for name, cast in casts.items())), names)
    table = hashed.select(_NUMBER, ROW, *(exact_column(name) for name in names)).orderBy(F.col(_NUMBER)).toArrow()
    values = python_rows(table.select(list(names)).combine_chunks().to_batches()[0])
    hashes = table[ROW].to_pylist()
    return [_hash_or_refusal(key, row, number, schema) for key, row, number in zip(keys, values, hashes, strict=True)]


def _hash_or_refusal(key: Key, values: Mapping[str, Any], number: int, schema: pa.Schema) -> HashedKey | ConfigError:
    for name, value in values.items():
        if value is None or _is_rounded(value, key[name]):
            return refuse_value(name, key[name], schema.field(name).type)
    return HashedKey(number, {name: record_value(value) for name, value in values.items()})


def _is_rounded(value: Any, text: str) -> bool:
    """Whether a decimal is not the number of the text, which has more digits."""
    try:
        return isinstance(value, Decimal) and value != Decimal(text.strip())
    except InvalidOperation:
        return False

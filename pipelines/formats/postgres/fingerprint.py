"""Identifies the rows of a relation by their content: their number, and a sum of hashes of their texts, which the server computes.

PostgreSQL has no cheap proof that rows are as they were. The place in its log moves with every checkpoint, counters of changes are lost in
a crash, and the transactions that wrote rows (`xmin`, `ctid`) say nothing of columns added with a default, and change with CLUSTER and
restores although no row does. So the server reads all rows, in parts as they are read later, and sends a line for each part. Equal rows
have equal fingerprints in any order, on any server, also after a restore; no row leaves the server for it.

The hash is `hashtextextended` with two seeds, 128 bits in all: random changes collide with a chance of 2^-128. It is no protection against
somebody who can write to the database, and makes collisions on purpose.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import sha256

import pyarrow as pa
from pyspark.sql import SparkSession

from pipelines.data.sources.base import distribute
from pipelines.errors import SourceError
from pipelines.formats.postgres.address import quote_text
from pipelines.formats.postgres.columns import Column, row_text
from pipelines.formats.postgres.relation import Relation
from pipelines.formats.postgres.server import fetch, server_errors
from pipelines.formats.postgres.snapshot import Exported, import_snapshot

_CHECKSUM = re.compile(
    r"postgres:(?P<rows>\d+)-(?P<first>[0-9a-f]{16})(?P<second>[0-9a-f]{16})-(?P<columns>[0-9a-f]{16})(?:@(?P<watermark>.+))?"
)
_FIELDS = "part int, rows long, bytes long, first string, second string, watermark string"


@dataclass(frozen=True)
class Fingerprint:
    """Of some rows; those of parts add up."""

    rows: int
    bytes: int
    """Of the texts of the rows."""
    first: int
    """Sum of hashes modulo 2^64."""
    second: int
    """The same with another seed."""
    watermark: str = ""
    """The greatest value of that column, as text; empty without one."""

    def matches(self, other: "Fingerprint") -> bool:
        return (self.rows, self.first, self.second) == (other.rows, other.first, other.second)


def add(first_rows: Fingerprint, other_rows: Fingerprint) -> Fingerprint:
    sums = ((first_rows.first + other_rows.first) % 2**64, (first_rows.second + other_rows.second) % 2**64)
    return Fingerprint(
        first_rows.rows + other_rows.rows, first_rows.bytes + other_rows.bytes, *sums, _later(first_rows.watermark, other_rows.watermark)
    )


def subtract(all_rows: Fingerprint, part: Fingerprint) -> Fingerprint:
    """Of the rows that are not in the `part`."""
    sums = ((all_rows.first - part.first) % 2**64, (all_rows.second - part.second) % 2**64)
    return Fingerprint(all_rows.rows - part.rows, all_rows.bytes - part.bytes, *sums)


def _later(first: str, second: str) -> str:
    """The greater watermark: of integers by value; texts of dates and times, as ISO 8601 has them, sort as these do."""
    if re.fullmatch(r"-?\d+", first or second):
        return max(filter(None, (first, second)), key=int)
    return max(first, second)


def checksum_text(fingerprint: Fingerprint, columns: Sequence[Column]) -> str:
    """The text that names a snapshot: rows, hashes, columns with their types, and the watermark."""
    watermark = f"@{fingerprint.watermark}" if fingerprint.watermark else ""
    return f"postgres:{fingerprint.rows}-{fingerprint.first:016x}{fingerprint.second:016x}-{_columns_digest(columns)}{watermark}"


def from_checksum(text: str, columns: Sequence[Column]) -> Fingerprint | None:
    """The fingerprint that `checksum` wrote; None if it is of another format or of other columns. Bytes are not in it."""
    parts = _CHECKSUM.fullmatch(text)
    if parts is None or parts["columns"] != _columns_digest(columns):
        return None
    return Fingerprint(int(parts["rows"]), 0, int(parts["first"], 16), int(parts["second"], 16), parts["watermark"] or "")


def _columns_digest(columns: Sequence[Column]) -> str:
    lines = [f"{column.name}\0{column.type_name}\0{column.kind.simpleString()}" for column in columns]
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def fingerprint_parts(spark: SparkSession, relation: Relation, conditions: Sequence[str]) -> list[Fingerprint]:
    """The fingerprint of each part. Several parts are computed by Spark's tasks. Raises SourceError for a watermark that is infinite."""
    sql, exported = _sql(relation), relation.snapshot.exported
    if len(conditions) == 1:
        with server_errors(relation.settings.url, relation.subject):
            rows = [{"part": 0, **fetch(relation.snapshot.connection, sql.format(condition=conditions[0]))[0]}]
    else:
        work = list(enumerate(conditions))
        rows = [row.asDict() for row in distribute(spark, work, partial(_compute, exported, relation.subject, sql), _FIELDS).collect()]
    by_part = {row.pop("part"): row for row in rows}
    fingerprints = [_from_row(by_part[part]) for part in range(len(conditions))]
    if infinite := next((part.watermark for part in fingerprints if re.search(r"infinity|BC|^\d{5,}-", part.watermark)), ""):
        raise SourceError(
            f"{relation.settings.place}: the watermark {relation.settings.watermark} is {infinite} in a row, after which nothing can come; "
            "correct the row, or leave it out by a query"
        )
    return fingerprints


def combine(parts: Sequence[Fingerprint]) -> Fingerprint:
    return reduce(add, parts)


def _from_row(row: dict[str, str | int | None]) -> Fingerprint:
    first, second = (int(row[name] or 0) % 2**64 for name in ("first", "second"))
    return Fingerprint(int(row["rows"] or 0), int(row["bytes"] or 0), first, second, str(row["watermark"] or ""))


def _sql(relation: Relation) -> str:
    """The SELECT of a part, with its condition first_rows open."""
    watermark = relation.watermark.identifier if relation.watermark else "NULL::int"
    rows = f"SELECT {row_text(relation.columns)} AS text, {watermark} AS watermark FROM {relation.source}"
    sums = [f"sum(hashtextextended(text, {seed}))::text AS {name}" for seed, name in enumerate(("first", "second"))]
    results = ["count(*) AS rows", "coalesce(sum(octet_length(text)), 0)::bigint AS bytes", *sums, "max(watermark)::text AS watermark"]
    # OFFSET 0 keeps the text of a row from being made for each use of it.
    return f"SELECT {', '.join(results)} FROM ({rows.replace('{', '{{').replace('}', '}}')} WHERE {{condition}} OFFSET 0) AS rows"


def _compute(exported: Exported, subject: str, sql: str, work: tuple[int, str]) -> Iterator[pa.RecordBatch]:
    part, condition = work
    with import_snapshot(exported, subject) as connection:
        row = fetch(connection, sql.format(condition=condition))[0]
    schema = pa.schema(
        [
            ("part", pa.int32()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            *((name, pa.string()) for name in ("first", "second", "watermark")),
        ]
    )
    yield pa.RecordBatch.from_pylist([{"part": part, **row}], schema=schema)


def after(column: Column, watermark: str) -> str:
    """SQL of the condition that a row came after a watermark."""
    return f"{column.identifier} > {quote_text(watermark)}::{column.type_name}"

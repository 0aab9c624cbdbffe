"""Reads the rows of a part in a task of Spark, and checks that they are those that were identified."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.data.sources.text.parsed import LINE, PROBLEM, RANGE, RECORD
from pipelines.errors import SourceError
from pipelines.formats.postgres.arrays import nest
from pipelines.formats.postgres.columns import Column, fault_expression, row_text
from pipelines.formats.postgres.fingerprint import Fingerprint
from pipelines.formats.postgres.snapshot import Exported, import_snapshot

_BATCH_BYTES = 4 * 2**20
_RECORD_CHARACTERS = 10_000
_HASH = "_hash"


@dataclass(frozen=True)
class Part:
    """The work of a task."""

    number: int
    condition: str
    expected: Fingerprint


@dataclass(frozen=True)
class PartReader:
    """Reads parts of a relation; it travels to Spark's tasks by pickle."""

    exported: Exported
    place: str
    """The address and the relation, for messages."""
    subject: str
    """The relation."""
    columns: Sequence[Column]
    source: str
    schema: pa.Schema
    """Of the batches: the relation's columns, PROBLEM, RECORD, RANGE and LINE."""
    has_hash: bool
    """Whether the hashes of the rows are compared as well as their number: a query can give other rows each time it is run."""

    def __call__(self, part: Part) -> Iterator[pa.RecordBatch]:
        rows = hashes = 0
        with import_snapshot(self.exported, self.subject) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            cursor.execute(f"{self._select()} WHERE {part.condition}")
            for received in cursor.fetch_record_batch():
                if self.has_hash:
                    hashes += int(received[_HASH].to_numpy().astype(np.uint64).sum(dtype=np.uint64))
                yield self._convert(received, part.number, rows)
                rows += len(received)
        if rows != part.expected.rows or (self.has_hash and hashes % 2**64 != part.expected.first):
            raise SourceError(
                f"{self.place} gave other rows when it was read ({rows:,}) than when they were counted ({part.expected.rows:,}), in one "
                "snapshot: it depends on the clock, on chance, or on an order that it does not state; write moments into it, as in "
                "TIMESTAMP '2026-01-31', and give LIMIT and DISTINCT ON an ORDER BY without ties"
            )

    def _select(self) -> str:
        values = [f"{column.sent_value} AS c{number}" for number, column in enumerate(self.columns)]
        lengths = [
            f"{length} AS n{number}_{dimension}"
            for number, column in enumerate(self.columns)
            for dimension, length in enumerate(column.sent_lengths)
        ]
        fault = fault_expression(self.columns)
        text = row_text(self.columns)
        record = f"CASE WHEN {fault} IS NOT NULL THEN left({text}, {_RECORD_CHARACTERS}) END" if fault != "NULL::text" else fault
        hashed = [f"hashtextextended({text}, 0) AS {_HASH}"] if self.has_hash else []
        return f"SELECT {', '.join([*values, *lengths, f'{fault} AS {PROBLEM}', f'{record} AS {RECORD}', *hashed])} FROM {self.source}"

    def _convert(self, received: pa.RecordBatch, part: int, rows_before: int) -> pa.RecordBatch:
        arrays = []
        for number, (column, field) in enumerate(zip(self.columns, self.schema, strict=False)):
            array = storage(received[f"c{number}"])
            if column.dimensions > 1:
                array = nest(array, [received[f"n{number}_{dimension}"].to_numpy() for dimension in range(column.dimensions)])
            arrays.append(_cast(array, field, f"{self.place}: column {column.name}"))
        problems = received[PROBLEM]
        lines = pa.array(np.arange(rows_before + 1, rows_before + len(received) + 1))
        origin = {PROBLEM: problems, RECORD: received[RECORD], RANGE: pa.repeat(pa.scalar(part, pa.int32()), len(received)), LINE: lines}
        return pa.record_batch([*arrays, *origin.values()], schema=self.schema)


def storage(array: pa.Array) -> pa.Array:
    """The array without PostgreSQL's types around those of Arrow."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _cast(array: pa.Array, field: pa.Field, place: str) -> pa.Array:
    """The array in the type of its field. Raises SourceError for text that is not UTF-8, as a database without an encoding may have."""
    try:
        array = array.cast(field.type)
        array.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"{place} cannot be read as {field.type}: {error}; CAST it in a query") from error
    return array

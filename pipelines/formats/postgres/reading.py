"""Reads the rows of a part in a task of Spark, and checks that they are those that were identified."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from pipelines.data.sources.text.parsed import PROBLEM
from pipelines.errors import SourceError
from pipelines.formats.postgres.arrays import nest
from pipelines.formats.postgres.columns import Column, fault_number, row_text
from pipelines.formats.postgres.fingerprint import Fingerprint
from pipelines.formats.postgres.relation import Relation
from pipelines.formats.postgres.snapshot import Exported, import_snapshot

_BATCH_BYTES = 4 * 2**20
_RECORD_CHARACTERS = 10_000
_HASH = "_hash"


@dataclass(frozen=True)
class TaskPart:
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

    def __call__(self, part: TaskPart) -> Iterator[pa.RecordBatch]:
        rows = hashes = 0
        with import_snapshot(self.exported, self.subject) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            cursor.execute(select(self.columns, f"{self.source} WHERE {part.condition}", self.has_hash))
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

    def _convert(self, received: pa.RecordBatch, part: int, rows_before: int) -> pa.RecordBatch:
        arrays = convert(received, self.columns, self.place)
        lines = pa.array(np.arange(rows_before + 1, rows_before + len(received) + 1))
        problems = problems_and_records(received, self.columns)
        origin = [*problems, pa.repeat(pa.scalar(part, pa.int32()), len(received)), lines]
        return pa.record_batch([*arrays, *origin], schema=self.schema)


def select(columns: Sequence[Column], source: str, has_hash: bool) -> str:
    """SQL of what is sent of each row of `source`: its values as c0, c1 and so on, lengths of arrays, and if a column can have a fault, the
    first fault's number with the row's text. Of a row with a fault, no value that could have one is sent."""
    number, text = fault_number(columns), row_text(columns)
    sent = [
        f"{f'CASE WHEN {PROBLEM} IS NULL THEN {column.value} END' if column.fault else column.value} AS c{place}"
        for place, column in enumerate(columns)
    ]
    sent += [
        f"{length} AS n{place}_{dimension}" for place, column in enumerate(columns) for dimension, length in enumerate(column.sent_lengths)
    ]
    if number:
        # In one text, since the driver takes longer for a NULL than for a number. OFFSET 0 keeps faults from being looked for at each use.
        fault = f"concat({PROBLEM}, ' ', left({text}, {_RECORD_CHARACTERS}))"
        sent.append(f"CASE WHEN {PROBLEM} IS NOT NULL THEN {fault} END AS {PROBLEM}")
        source = f"(SELECT *, {number} AS {PROBLEM} FROM {source} OFFSET 0) AS rows"
    if has_hash:
        sent.append(f"hashtextextended({text}, 0) AS {_HASH}")
    return f"SELECT {', '.join(sent)} FROM {source}"


def problems_and_records(received: pa.RecordBatch, columns: Sequence[Column]) -> tuple[pa.Array, pa.Array]:
    """Of each row, its first fault in words, and its text; NULL if it has none."""
    if PROBLEM not in received.schema.names:
        return pa.nulls(len(received), pa.string()), pa.nulls(len(received), pa.string())
    parts = pc.extract_regex(received[PROBLEM], r"(?s)^(?P<number>\d+) (?P<record>.*)$")
    problems = pa.array([column.problem for column in columns])
    return problems.take(pc.struct_field(parts, "number").cast(pa.int32())), pc.struct_field(parts, "record")


def read_sample(relation: Relation, source: str, limit: str) -> tuple[pa.Table, int]:
    """The rows of `source` without a fault, in the transaction of the driver, and the number of those with one."""
    names = [column.name for column in relation.columns]
    batches, faulty = list[pa.RecordBatch](), 0
    with relation.snapshot.connection.cursor() as cursor:
        cursor.execute(select(relation.columns, f"{source}{limit}", False))
        for received in cursor.fetch_record_batch():
            is_sound = problems_and_records(received, relation.columns)[0].is_null()
            arrays = convert(received, relation.columns, relation.settings.place)
            batch = pa.record_batch(arrays, names=names).filter(is_sound)
            batches.append(batch)
            faulty += len(received) - len(batch)
    return pa.Table.from_batches(batches, batches[0].schema if batches else pa.schema([(name, pa.null()) for name in names])), faulty


def convert(received: pa.RecordBatch, columns: Sequence[Column], place: str) -> list[pa.Array]:
    """The values of the columns in the types of Spark's columns. Raises SourceError for what is not in its type, such as a text that is not
    UTF-8, which a database without an encoding may have."""
    arrays = []
    for number, column in enumerate(columns):
        array = storage(received[f"c{number}"])
        if column.dimensions > 1:
            array = nest(array, [received[f"n{number}_{dimension}"].to_numpy() for dimension in range(column.dimensions)])
        kind = to_arrow_type(column.kind, timezone="UTC")
        try:
            array = array.cast(kind)
            array.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(f"{place}: column {column.name} cannot be read as {kind}: {error}; CAST it in a query") from error
        arrays.append(array)
    return arrays


def storage(array: pa.Array) -> pa.Array:
    """The array without PostgreSQL's types around those of Arrow."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array

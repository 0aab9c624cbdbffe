"""A sample of rows of each split, for the data's page: those of smallest order, from the pass that fits the encoders.

With a key, the order is the hash of the key, so the sample does not depend on partitions. Without one, equal rows have equal hashes,
and would come all or none: there a row's place in its partition is mixed in, which makes every row as likely as any other.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.features.raw import find_invalid, is_list, is_text, python_value
from pipelines.data.versions.data_profile import TEXT_LENGTH
from pipelines.data.versions.manifest import SPLITS

ROWS, LEAST_ROWS, CELLS = 2_000, 200, 1_000_000
"""Rows of each split: the first, by which the standard error of a share is at most 0.011. Of tables with so many columns that these would
have more than CELLS, fewer rows are sampled, but not fewer than the second."""
ORDER, SPLIT = "__order", "__split"
_ODD = np.uint64(0x9E3779B97F4A7C15)


def rows_per_split(columns: int) -> int:
    return max(LEAST_ROWS, min(ROWS, CELLS // max(columns, 1)))


class RowSample:
    """Samples the rows of one partition."""

    def __init__(self, has_key: bool, rows: int = ROWS) -> None:
        """`has_key`: whether rows have a key, so that no two have the same order. `rows` is their largest number in each split."""
        self._has_key, self._rows, self._rows_seen, self._pending = has_key, rows, 0, 0
        self._limits = np.full(len(SPLITS), 2**64 - 1, np.uint64)
        self._tables: list[pa.Table] = []

    def add(self, columns: Mapping[str, pa.Array], split: np.ndarray, order: np.ndarray) -> None:
        """Add a batch: raw columns, and for each row the index of its split and, uint64, its hash."""
        if not self._has_key:
            order = mix_bits(order + np.arange(self._rows_seen, self._rows_seen + len(order), dtype=np.uint64) * _ODD)
        self._rows_seen += len(order)
        small = np.flatnonzero(order <= self._limits[split])
        if not len(small):
            return
        columns_to_keep = {name: abridge(values.take(pa.array(small))) for name, values in columns.items()}
        self._tables.append(pa.table({**columns_to_keep, ORDER: order[small], SPLIT: split[small].astype(np.int8)}))
        self._pending += len(small)
        if self._pending > 4 * len(SPLITS) * self._rows:
            self._keep_smallest()

    def summary(self) -> str:
        """The sample as Arrow's IPC format, in base64; empty without rows."""
        self._keep_smallest()
        return _pack(self._tables[0]) if self._tables else ""

    def _keep_smallest(self) -> None:
        if not self._tables:
            return
        self._tables = [_smallest(pa.concat_tables(self._tables), self._rows)]
        self._pending = len(self._tables[0])
        order, split = (self._tables[0][name].to_numpy() for name in (ORDER, SPLIT))
        for number in range(len(SPLITS)):
            if len(orders := order[split == number]) == self._rows:
                self._limits[number] = orders.max()


def mix_bits(values: np.ndarray) -> np.ndarray:
    """A bijection of uint64 that spreads neighbours: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = values ^ (values >> np.uint64(31))
    return mixed


def merge_samples(first: str, second: str) -> str:
    """The sample of two partitions together, from their summaries."""
    if not first or not second:
        return first or second
    table = pa.concat_tables([_unpack(first), _unpack(second)])
    return _pack(_smallest(table, rows_per_split(table.num_columns - 2)))


def rows_by_split(summary: str) -> dict[str, pa.Table]:
    """The sampled rows of each split, without their order; a split without rows is left out."""
    if not summary:
        return {}
    table = _unpack(summary).sort_by(ORDER)
    by_name = {name: table.filter(pc.equal(table[SPLIT], number)).drop_columns([ORDER, SPLIT]) for number, name in enumerate(SPLITS)}
    return {name: rows for name, rows in by_name.items() if len(rows)}


def abridge(values: pa.Array) -> pa.Array:
    """A column as a sample has it: the beginning of a text, the length of a list, whether any other nested value or bytes are
    there, and everything else as it is."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if is_text(values.type):
        if find_invalid(values) is not None:
            values = pa.array(map(python_value, values), pa.string())
        return pc.utf8_slice_codeunits(values.cast(pa.string()), 0, TEXT_LENGTH)
    if is_list(values.type):
        return pc.list_value_length(values).cast(pa.int64())
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pc.if_else(values.is_valid(), True, pa.scalar(None, pa.bool_()))
    return values


def _smallest(table: pa.Table, most: int) -> pa.Table:
    """The `most` rows of smallest order of each split."""
    order, split = (table[name].to_numpy() for name in (ORDER, SPLIT))
    smallest = []
    for number in range(len(SPLITS)):
        rows = np.flatnonzero(split == number)
        smallest.append(rows if len(rows) <= most else rows[np.argpartition(order[rows], most - 1)[:most]])
    return table.take(pa.array(np.concatenate(smallest)))


def _pack(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return b64encode(sink.getvalue()).decode()


def _unpack(text: str) -> pa.Table:
    return pa.ipc.open_stream(b64decode(text)).read_all()

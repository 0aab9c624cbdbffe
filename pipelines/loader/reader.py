"""Reads row groups, and never returns a wrong one.

What a manifest says of a row group is checked before and after decoding: its size before memory is spent on it, page
checksums on every read, row count and column types always, the SHA-256 of its content the first time it is read.
"""

from collections import OrderedDict
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from pipelines.dataset import storage
from pipelines.dataset.parts import RowGroup, row_group_digest
from pipelines.dataset.schema import to_numpy
from pipelines.dataset.versions import Version
from pipelines.errors import CorruptError, DatasetError

FOOTERS_KEPT = 256
UNCOMPRESSED_SLACK = 4
"""A row group whose pages claim to unpack to more than this many times the size of its rows is refused."""


class Reader:
    """Row groups of a version's split, in order, as NumPy arrays. Safe to share between threads."""

    def __init__(self, version: Version, split: str) -> None:
        self.groups = version.of_split(split)
        if not self.groups:
            raise DatasetError(f"{version.root} has no rows in split {split}; give it a share in dataset.split and run jobs/etl.py again")
        self.columns = version.columns
        self.group_rows = np.array([group.rows for group in self.groups], np.int64)
        self.row_bytes = sum(column.row_bytes for column in self.columns)
        self._version = version
        self._names = [column.name for column in self.columns]
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._verified = np.zeros(len(self.groups), bool)
        self._lock = Lock()

    @property
    def decoded_bytes(self) -> int:
        """Of the whole split."""
        return int(self.group_rows.sum()) * self.row_bytes

    def read(self, number: int) -> dict[str, np.ndarray]:
        """Row group `number` of the split: an array of shape (rows, *column.shape) for each column.

        Raises CorruptError, naming the file and the row group, for whatever is not as it was written, and DatasetError
        if the store does not answer.
        """
        group = self.groups[number]
        try:
            table = self._decode(group)
            values = {
                column.name: _joined([to_numpy(column, chunk) for chunk in table.column(column.name).chunks]) for column in self.columns
            }
            if not self._verified[number] and group.digest:
                self._verify(group, table)
        except FileNotFoundError as error:
            raise CorruptError(f"{self._name(group)}: the file is missing; restore it, or run jobs/etl.py again") from error
        except (OSError, KeyError, pa.ArrowException, DatasetError) as error:
            storage.ask(self._version.filesystem, f"{self._version.root}/{group.file}")
            raise CorruptError(f"{self._name(group)}: {error}; restore the file, or run jobs/etl.py again") from error
        self._verified[number] = True
        return values

    def _decode(self, group: RowGroup) -> pa.Table:
        filesystem, path = self._version.filesystem, f"{self._version.root}/{group.file}"
        remote = not isinstance(filesystem, LocalFileSystem)
        with filesystem.open_input_file(path) as source:
            footer = self._footer(group, source)
            self._check_claims(group, footer)
            # Many small reads are coalesced into one for a store; a local file is faster without.
            with pq.ParquetFile(source, metadata=footer, page_checksum_verification=True, pre_buffer=remote) as file:
                table = file.read_row_group(group.index, columns=self._names, use_threads=False)
        if table.num_rows != group.rows:
            raise DatasetError(f"it has {table.num_rows} rows; the manifest says {group.rows}")
        return table

    def _footer(self, group: RowGroup, source: pa.NativeFile) -> pq.FileMetaData:
        """The file's footer, from the few last read; its offset is known, so that it takes one read."""
        with self._lock:
            if group.file in self._footers:
                self._footers.move_to_end(group.file)
                return self._footers[group.file]
        size = source.size()
        if not 0 <= group.footer_offset < size:
            raise DatasetError(f"the file ends at byte {size}, before its footer at {group.footer_offset}")
        footer = pq.read_metadata(pa.BufferReader(source.read_at(size - group.footer_offset, group.footer_offset)))
        with self._lock:
            self._footers[group.file] = footer
            if len(self._footers) > FOOTERS_KEPT:
                self._footers.popitem(last=False)
        return footer

    def _check_claims(self, group: RowGroup, footer: pq.FileMetaData) -> None:
        """Refuse before decoding what would not be what the manifest says, or would take far more memory."""
        if group.index >= footer.num_row_groups:
            raise DatasetError(f"the file has {footer.num_row_groups} row groups")
        claimed = footer.row_group(group.index)
        if claimed.num_rows != group.rows:
            raise DatasetError(f"it has {claimed.num_rows} rows; the manifest says {group.rows}")
        expected = group.rows * self.row_bytes
        if claimed.total_byte_size > UNCOMPRESSED_SLACK * expected + 2**20:
            raise DatasetError(f"its pages unpack to {claimed.total_byte_size} bytes; its rows take {expected}")

    def _verify(self, group: RowGroup, table: pa.Table) -> None:
        found = row_group_digest(self.columns, table)
        if found != group.digest:
            raise DatasetError(f"its content has digest {found[:12]}; the manifest says {group.digest[:12]}")

    def _name(self, group: RowGroup) -> str:
        return f"{self._version.root}/{group.file}, row group {group.index}"


def _joined(chunks: list[np.ndarray]) -> np.ndarray:
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)

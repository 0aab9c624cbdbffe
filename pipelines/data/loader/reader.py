"""Reads row groups, and never returns a wrong one.

Every read compares a row group with the index: the checksums of its bytes and of the file's footer before
decoding, row count and column types after it. A folder of plain Parquet has checksums of its footers only; there the
sizes declared in the footer are checked before memory is allocated, and page checksums if there are any.
"""

import os
from collections import OrderedDict
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.data.loader.blocks import Buffers
from pipelines.data.versions import storage
from pipelines.data.versions.manifest import RESTORE
from pipelines.data.versions.parts import RowGroup, checksum
from pipelines.data.versions.schema import to_numpy
from pipelines.data.versions.versions import Version
from pipelines.errors import CorruptError, DatasetError

CACHED_FOOTERS = 256
_REOPEN = "restore the file, or open the folder again"
"""Of plain Parquet, which no ETL can make again. Its rows have another digest then."""
UNCOMPRESSED_SLACK = 4
"""A row group is refused if its pages declare more than this many times the size of its rows."""


class Reader:
    """Row groups of a version's split, in order, as NumPy arrays. Thread-safe."""

    def __init__(self, version: Version, split: str) -> None:
        self.groups = version.split_row_groups(split)
        if not self.groups:
            raise DatasetError(f"{version.root} has no rows in split {split}; give it a share in dataset.split and run jobs/etl.py again")
        self.columns = version.columns
        self.group_rows = self.groups.rows
        self.row_bytes = sum(column.row_bytes for column in self.columns)
        self._version = version
        self._footers: OrderedDict[str, pq.FileMetaData] = OrderedDict()
        self._lock = Lock()
        self._memory = Buffers()

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the whole split."""
        return int(self.group_rows.sum()) * self.row_bytes

    def read(self, number: int) -> dict[str, np.ndarray]:
        """Row group `number` of the split: an array of shape (rows, *column.shape) for each column. Raises CorruptError, naming the file
        and the row group, for any alteration, and DatasetError if the store does not answer."""
        group = self.groups[number]
        path, remedy = storage.part_path(self._version.root, group.file), RESTORE if group.checksum else _REOPEN
        try:
            batches = self._decode(group).to_batches()
            values = {}
            for column in self.columns:
                chunks = [to_numpy(column, batch.column(column.name)) for batch in batches]
                values[column.name] = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
            return group.select(values)
        except FileNotFoundError as error:
            raise CorruptError(f"{path}, row group {group.index}: the file is missing; {remedy}") from error
        except (OSError, KeyError, pa.ArrowException, DatasetError) as error:
            storage.ask(self._version.filesystem, path)
            raise CorruptError(f"{path}, row group {group.index}: {error}; {remedy}") from error

    def _decode(self, group: RowGroup) -> pa.Table:
        with self._version.filesystem.open_input_file(storage.part_path(self._version.root, group.file)) as source:
            footer = self._footer(group, source)
            self._check_claims(group, footer)
            content = self._memory.lend(group.bytes).data  # used again: fresh memory would take longer to touch than to fill
            source.seek(group.offset)
            if (got := source.readinto(content)) != group.bytes:
                raise DatasetError(f"the file ends {group.bytes - got} bytes before it does")
        _check(content, group.checksum, "its bytes")
        excerpt = _Excerpt(content, group.offset)
        with pq.ParquetFile(excerpt, metadata=footer, page_checksum_verification=not group.checksum, pre_buffer=False) as file:
            table = file.read_row_group(group.index, use_threads=False)
        if table.num_rows != group.stored_rows:
            raise DatasetError(f"it has {table.num_rows} rows; the manifest says {group.stored_rows}")
        return table

    def _footer(self, group: RowGroup, source: pa.NativeFile) -> pq.FileMetaData:
        """The file's footer, cached; its offset is known, so that it takes one read."""
        with self._lock:
            if group.file in self._footers:
                self._footers.move_to_end(group.file)
                return self._footers[group.file]
        size = source.size()
        if not 0 <= group.footer_offset < size:
            raise DatasetError(f"the file ends at byte {size}, before its footer at {group.footer_offset}")
        content = source.read_at(size - group.footer_offset, group.footer_offset)
        _check(content, group.footer_checksum, "the footer's bytes")
        footer = pq.read_metadata(pa.BufferReader(content))
        with self._lock:
            self._footers[group.file] = footer
            if len(self._footers) > CACHED_FOOTERS:
                self._footers.popitem(last=False)
        return footer

    def _check_claims(self, group: RowGroup, footer: pq.FileMetaData) -> None:
        """Refuse a row group before decoding if it contradicts the manifest, or would need far more memory."""
        if group.index >= footer.num_row_groups:
            raise DatasetError(f"the file has {footer.num_row_groups} row groups")
        claimed = footer.row_group(group.index)
        if claimed.num_rows != group.stored_rows:
            raise DatasetError(f"it has {claimed.num_rows} rows; the manifest says {group.stored_rows}")
        expected = group.stored_rows * self.row_bytes
        if max(group.bytes, claimed.total_byte_size) > UNCOMPRESSED_SLACK * expected + 2**20:
            raise DatasetError(f"its pages are {group.bytes} bytes and unpack to {claimed.total_byte_size}; its rows take {expected}")


class _Excerpt:
    """A file-like object with one span of a file's bytes, at the offsets of the whole file."""

    closed = False

    def __init__(self, content: memoryview, start: int) -> None:
        self._content, self._start, self._at = content, start, 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset if whence == os.SEEK_SET else self._start + len(self._content) + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> memoryview:
        """Returns a view. Raises OSError outside the span."""
        at = self._at - self._start
        if not 0 <= at <= at + size <= len(self._content):
            raise OSError(f"it points to {size} bytes at {self._at}, outside of the row group")
        self._at += size
        return self._content[at : at + size]

    def close(self) -> None: ...


def _check(content: bytes | memoryview, expected: str, subject: str) -> None:
    if expected and (actual := checksum(content)) != expected:
        raise DatasetError(f"{subject} have the checksum {actual[:12]}, and {expected[:12]} when they were written")

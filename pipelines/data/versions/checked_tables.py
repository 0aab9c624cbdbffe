"""Parquet tables beside a manifest, which has the checksum of each: written and read in batches, since they may have millions of rows."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, FileType

from pipelines.data.versions import storage
from pipelines.data.versions.manifest import DAMAGED
from pipelines.errors import CorruptError

ONCE_BYTES = 8 * 2**20
"""Files up to this size are read once. Larger ones are read twice, for the checksum and for the rows, so that no memory has them whole."""
BLOCK_BYTES = 2**17
BATCH_ROWS = 2**13


class _HashedStream:
    """A file being written, with the SHA-256 of its bytes."""

    closed = False

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream, self._end, self.digest = stream, 0, sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self._end += len(data)
        return self._stream.write(data)

    def tell(self) -> int:
        return self._end

    def flush(self) -> None: ...

    def close(self) -> None:
        """Does nothing: the opener of the stream closes it."""


def write_table(filesystem: FileSystem, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], repeated: Sequence[str]) -> str:
    """Write the file `path` and return its checksum, for the manifest. Columns of `repeated` values have dictionaries."""
    with storage.store_errors(path), filesystem.open_output_stream(path) as stream:
        hashed = _HashedStream(stream)
        with pq.ParquetWriter(hashed, schema, compression="zstd", use_dictionary=list(repeated), write_statistics=False) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return f"sha256:{hashed.digest.hexdigest()}"


def read_batches(filesystem: FileSystem, path: str, schema: pa.Schema, expected_checksum: str) -> Iterator[pa.RecordBatch]:
    """The rows of the file `path`. Raises CorruptError if it has another checksum, another schema, or NULLs."""
    with open_table(filesystem, path, schema, expected_checksum) as (_, batches):
        yield from batches


@contextmanager
def open_table(
    filesystem: FileSystem, path: str, schema: pa.Schema, expected_checksum: str
) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """The number of rows of the file `path`, and the rows. Raises what `read_batches` does."""
    with _open_checked(filesystem, path, expected_checksum) as source:
        try:
            # Without `pre_buffer`, by which Arrow would read the whole file ahead.
            parquet = pq.ParquetFile(source, pre_buffer=False, buffer_size=BLOCK_BYTES)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise CorruptError(f"{path}: {error}; {DAMAGED}") from error
        yield parquet.metadata.num_rows, _batches(filesystem, path, schema, parquet)


def _batches(filesystem: FileSystem, path: str, schema: pa.Schema, parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    is_complete = parquet.schema_arrow.equals(schema)
    try:
        # In this thread: one of Arrow's that lets go of its buffers while the interpreter ends would abort the process.
        batches = parquet.iter_batches(BATCH_ROWS, use_threads=False)
        while is_complete and (batch := next(batches, None)) is not None:
            is_complete = not any(column.null_count for column in batch.columns)
            if is_complete:
                yield batch
    except (OSError, ValueError, pa.ArrowException) as error:
        storage.ask(filesystem, path)
        raise CorruptError(f"{path}: {error}; {DAMAGED}") from error
    if not is_complete:
        raise CorruptError(f"{path} has other columns than {', '.join(schema.names)}, or NULLs in them; {DAMAGED}")


@contextmanager
def _open_checked(filesystem: FileSystem, path: str, expected_checksum: str) -> Iterator[pa.NativeFile]:
    """The file, from its beginning, whose checksum has been compared."""
    with storage.store_errors(path):
        if filesystem.get_file_info(path).type == FileType.NotFound:
            raise CorruptError(f"{path} is missing; {DAMAGED}")
        file = filesystem.open_input_file(path)
    with file:
        with storage.store_errors(path):
            source, digest = pa.BufferReader(file.read()) if file.size() <= ONCE_BYTES else file, sha256()
            while block := source.read(BLOCK_BYTES):
                digest.update(block)
            source.seek(0)
        if (actual := f"sha256:{digest.hexdigest()}") != expected_checksum:
            raise CorruptError(f"{path} has {actual[:19]}; the manifest says {expected_checksum[:19] or 'nothing'}; {DAMAGED}")
        yield source

"""Small Parquet tables beside the manifest, which holds their checksums."""

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.checksummed_json import checksum
from pipelines.data.versions.manifest import DAMAGED
from pipelines.errors import CorruptError


def write_table(filesystem: FileSystem, path: str, table: pa.Table) -> str:
    """Write the file `path` and return its checksum, for the manifest."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue()
    with storage.store_errors(path), filesystem.open_output_stream(path) as stream:
        stream.write(content)
    return checksum(content)


def read_table(filesystem: FileSystem, path: str, schema: pa.Schema, expected_checksum: str) -> pa.Table:
    """The table in the file `path`. Raises CorruptError if it has another checksum, another schema, or NULLs."""
    content = storage.read(filesystem, path)
    if content is None:
        raise CorruptError(f"{path} is missing; {DAMAGED}")
    if (actual_checksum := checksum(content)) != expected_checksum:
        raise CorruptError(f"{path} has {actual_checksum[:19]}; the manifest says {expected_checksum[:19] or 'nothing'}; {DAMAGED}")
    try:
        # In this thread: one of Arrow's that lets go of `content` while the interpreter ends would abort the process.
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise CorruptError(f"{path}: {error}; {DAMAGED}") from error
    if not table.schema.equals(schema) or any(column.null_count for column in table.columns):
        raise CorruptError(f"{path} has other columns than {', '.join(schema.names)}, or NULLs in them; {DAMAGED}")
    return table

"""Small Parquet tables beside the manifest, which holds their checksums; and one of them, the list of a version's raw files.

There may be millions of them, so the manifest, which is part of every model, contains only a summary of each table.
"""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.checksummed_json import checksum
from pipelines.data.versions.manifest import DAMAGED, SourceSummary
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


_SCHEMA = pa.schema({"table": pa.string(), "path": pa.string(), "bytes": pa.int64(), "checksum": pa.string()})


@dataclass(frozen=True, order=True)
class SourceFile:
    """One file of a raw table when it was read."""

    path: str
    bytes: int
    checksum: str
    """`sha256:…` of its bytes, or `stat:…` of size and modification time."""


Sources = dict[str, tuple[SourceFile, ...]]
"""Files by table."""


def source_summaries(sources: Sources) -> dict[str, SourceSummary]:
    """The summary of each table, for the manifest."""
    return {
        table: SourceSummary(files=len(files), bytes=sum(file.bytes for file in files), digest=_digest(files))
        for table, files in sources.items()
    }


def write_sources(filesystem: FileSystem, path: str, sources: Sources) -> str:
    """Write the file `path` and return its checksum, for the manifest."""
    rows = [{"table": table, **asdict(file)} for table, files in sources.items() for file in files]
    return write_table(filesystem, path, pa.Table.from_pylist(rows, schema=_SCHEMA))


def read_sources(filesystem: FileSystem, path: str, expected_checksum: str) -> Sources:
    """The tables that have files. Raises CorruptError if the file's checksum is not `expected_checksum`."""
    sources: dict[str, list[SourceFile]] = {}
    for row in read_table(filesystem, path, _SCHEMA, expected_checksum).to_pylist():
        sources.setdefault(row.pop("table"), []).append(SourceFile(**row))
    return {table: tuple(files) for table, files in sources.items()}


def _digest(files: tuple[SourceFile, ...]) -> str:
    """Sorted by path. A path may contain any character, so each file is hashed as a line of JSON."""
    digest = sha256()
    for file in sorted(files):
        digest.update(json.dumps([file.path, file.bytes, file.checksum]).encode() + b"\n")
    return digest.hexdigest()

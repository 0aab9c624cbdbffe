"""The list of a version's raw files, in sources-<attempt>.parquet.

There may be millions of them, so the manifest, which is part of every model, contains only a summary of each table.
"""

import json
from dataclasses import asdict, dataclass
from hashlib import sha256

import pyarrow as pa
from pyarrow.fs import FileSystem

from pipelines.data.versions.listings import read_table, write_table
from pipelines.data.versions.manifest import SourceSummary

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

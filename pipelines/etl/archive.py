"""The files inside a tar archive, read from front to back without unpacking it anywhere.

An archive may be compressed, as its ending says: `.tar.gz`. Folders and links are left out.
"""

import tarfile
from collections.abc import Iterator

import pyarrow as pa

from pipelines.errors import SourceError
from pipelines.etl.content import content

BATCH_BYTES = 4 * 2**20
MEMBER_BYTES = 2**30
"""A larger file inside an archive is refused: a header may promise any size."""


def read_members(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of the schema's columns, of `path` (the file's name in the archive) and `content`.

    Raises SourceError if the file is no tar archive, or breaks off.
    """
    names: list[str] = []
    contents: list[bytes] = []
    held = 0
    try:
        with content(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if not member.isreg():
                    continue
                if member.size > MEMBER_BYTES:
                    raise SourceError(
                        f"{path}: {member.name} has {member.size:,} bytes; a file in an archive may have {MEMBER_BYTES:,}: "
                        "read it unpacked, as binaryFile"
                    )
                file = archive.extractfile(member)
                assert file is not None, "a regular file has content"
                names.append(member.name)
                contents.append(file.read())
                held += len(names[-1]) + len(contents[-1])
                if held >= BATCH_BYTES:
                    yield _batch(names, contents, schema)
                    names, contents, held = [], [], 0
    except (tarfile.TarError, EOFError) as error:
        raise SourceError(f"{path} is not a whole tar archive: {error}; get the file again") from error
    if names:
        yield _batch(names, contents, schema)


def _batch(names: list[str], contents: list[bytes], schema: pa.Schema) -> pa.RecordBatch:
    columns = {"path": pa.array(names), "content": pa.array(contents, pa.binary())}
    return pa.record_batch([columns[name] for name in schema.names], schema=schema)

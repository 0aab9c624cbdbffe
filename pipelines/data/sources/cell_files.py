"""Files of cells with types of their own: the interface of their readers, which need no Spark."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import Any, Protocol

from pyarrow.fs import LocalFileSystem

from pipelines.config.messages.words import name_list, suggestion
from pipelines.data.sources.files.content import BLOCK_BYTES, file_errors, locate, open_file
from pipelines.errors import SourceError

Row = tuple[int, Sequence[Any]]
"""The line of a row in its file, and its cells in the order of the schema."""


class FileReader(Protocol):
    """Reads the rows of one file; it travels to Spark's tasks by pickle."""

    def __call__(self, path: str, names: Sequence[str]) -> Iterator[Row]:
        """The rows with cells for the columns of these names, in their order. Raises SourceError if the file has no such columns."""


@dataclass(frozen=True)
class CellFault:
    """In place of a value: an error that the cell holds, such as #N/A, or bytes of a text that are none."""

    name: str


def positions(path: str, place: str, header: Sequence[str], names: Iterable[str]) -> list[int]:
    """Where the columns stand in the header of the `place` in a file. Raises SourceError if one is missing, or there twice."""
    faults = []
    for name in names:
        if name not in header:
            hint = suggestion(name, header)
            faults.append(f"no column {name}{f' ({hint})' if hint else ''}")
        elif header.count(name) > 1:
            faults.append(f"{header.count(name)} columns {name}")
    if faults:
        raise SourceError(f"{path}: {place} has {name_list(faults)}; it has {name_list(list(header))}. Correct the schema or the file")
    return [header.index(name) for name in names]


@contextmanager
def local_file(path: str) -> Iterator[str]:
    """A path of this machine with the file's content: a copy, if it lies elsewhere."""
    filesystem, inner = locate(path)
    if isinstance(filesystem, LocalFileSystem):
        yield inner
        return
    with NamedTemporaryFile(prefix="lockstep-") as copy:
        with file_errors(path), open_file(path) as stream:
            while block := stream.read(BLOCK_BYTES):
                copy.write(block)
        copy.flush()
        yield copy.name

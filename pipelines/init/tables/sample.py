"""A bounded sample of a file of text: all of it, or pieces of whole lines at even distances. The same file gives the same sample."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.data.sources.files.content import COMPRESSED, content, file_errors

SAMPLE_BYTES = 64 * 2**20
PIECES = 64
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextSample:
    """Lines of a file, as bytes."""

    data: bytes
    """Whole lines, without compression; the first line of the file is the first of them."""
    share: float
    """About how much of the file's text that is, at most 1."""
    has_gaps: bool = False
    """Whether there are lines between those."""

    @property
    def is_complete(self) -> bool:
        return self.share == 1


def sample_text(path: str, most_bytes: int = SAMPLE_BYTES) -> TextSample:
    """Read at most about `most_bytes` of a file. A compressed file is read from its beginning, any other at even distances.

    Raises SourceError if the file cannot be read."""
    size = Path(path).stat().st_size
    if path.endswith(COMPRESSED):
        return _sample_stream(path, size, most_bytes)
    with file_errors(path), pa.OSFile(path) as file:
        if size <= most_bytes:
            return TextSample(file.read(), 1.0)
        if file.read(2) in _UTF_16:  # whose line breaks are no single bytes
            file.seek(0)
            return TextSample(file.read(most_bytes // 4 * 4), most_bytes / size)
        starts = [size * piece // PIECES for piece in range(PIECES)]
        pieces = [_whole_lines(file, start, most_bytes // PIECES) for start in starts]
    return TextSample(b"".join(pieces), sum(map(len, pieces)) / size, has_gaps=True)


def sample_beginning(path: str, most_bytes: int) -> TextSample:
    """Read the first lines of a large file. Raises SourceError if the file cannot be read."""
    with file_errors(path), pa.OSFile(path) as file:
        data = first_lines(file.read(most_bytes), most_bytes - 1)
    return TextSample(data, len(data) / Path(path).stat().st_size)


def sample_records(path: str, sample: TextSample, quote: str, most_bytes: int) -> TextSample:
    """The sample of a file whose records may have several lines: whole records from its beginning, since a piece from elsewhere may begin
    inside of one."""
    if sample.is_complete:
        return sample
    beginning = sample_beginning(path, most_bytes) if sample.has_gaps else sample
    data, mark = beginning.data, quote.encode()
    end, is_open = len(data), data.count(mark) % 2 == 1
    while is_open:
        start = data.rfind(b"\n", 0, end - 1) + 1
        is_open ^= data.count(mark, start, end) % 2 == 1
        end = start
    return TextSample(data[:end], beginning.share * end / max(len(data), 1))


def even_files(paths: list[str]) -> list[str]:
    """At most `PIECES` of some files, at even distances."""
    return paths if len(paths) <= PIECES else [paths[len(paths) * piece // PIECES] for piece in range(PIECES)]


def first_lines(data: bytes, most_bytes: int) -> bytes:
    """Whole lines from the start of some text."""
    return data if len(data) <= most_bytes else data[: data.rfind(b"\n", 0, most_bytes) + 1] or data[:most_bytes]


def _whole_lines(file: pa.NativeFile, start: int, most_bytes: int) -> bytes:
    """The lines that begin in the bytes from `start`, up to the last one that ends there."""
    file.seek(start)
    data: bytes = file.read(most_bytes)
    begin = data.find(b"\n") + 1 if start else 0
    return data[begin : data.rfind(b"\n") + 1]


def _sample_stream(path: str, size: int, most_bytes: int) -> TextSample:
    """The beginning of a compressed file. Its share is that of the compressed bytes that were read."""
    with content(path) as stream:
        blocks, length = list[bytes](), 0
        while length <= most_bytes and (block := stream.read(2**20)):
            blocks.append(block)
            length += len(block)
        is_complete = length <= most_bytes
    data = b"".join(blocks)
    if is_complete:
        return TextSample(data, 1.0)
    # A third is what text usually takes; only the size of a training depends on it.
    return TextSample(first_lines(data, most_bytes), min(length / (3 * max(size, 1)), 0.99))

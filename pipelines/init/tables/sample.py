"""A bounded sample of a file of text: all of it, whole lines at even distances, or whole records from its beginning. The same file gives
the same sample."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipelines.data.sources.files.content import COMPRESSED, content, file_errors
from pipelines.data.sources.text.records import RECORD_BYTES

SAMPLE_BYTES = 32 * 2**20
PIECES = 64
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class TextSample:
    """Lines of a file, as bytes."""

    data: bytes
    """Whole lines, without compression; the first line of the file is the first of them."""
    share: float
    """About how much of the file's text that is, at most 1."""

    @property
    def is_complete(self) -> bool:
        return self.share == 1


def sample_text(path: str, most_bytes: int = SAMPLE_BYTES) -> TextSample:
    """Read at most about `most_bytes` of a file at even distances. A compressed file, and one of long lines, is read from its beginning.

    Raises SourceError if the file cannot be read."""
    size = Path(path).stat().st_size
    if path.endswith(COMPRESSED):
        return sample_beginning(path, most_bytes)
    with file_errors(path), pa.OSFile(path) as file:
        if size <= most_bytes:
            return TextSample(file.read(), 1.0)
        is_utf_16 = file.read(2) in _UTF_16  # whose line breaks are no single bytes
        starts = [] if is_utf_16 else [size * piece // PIECES for piece in range(PIECES)]
        pieces = [_whole_lines(file, start, most_bytes // PIECES) for start in starts]
    data = b"".join(pieces)
    has_short_lines = len(data) > most_bytes / 2 and pieces[0]  # which has the header
    return TextSample(data, len(data) / size) if has_short_lines else sample_beginning(path, most_bytes)


def sample_beginning(path: str, most_bytes: int, quote: str = "") -> TextSample:
    """Read whole records from the beginning of a file, at most about `most_bytes`; more, where a record takes most of that. Between two of
    `quote`, a line break ends no record.

    Raises SourceError if the file cannot be read."""
    while True:
        sample = _read_beginning(path, most_bytes)
        if sample.is_complete:
            return sample
        end = _records_end(sample.data, quote.encode())
        if 2 * end >= len(sample.data) or most_bytes >= RECORD_BYTES:  # ETL refuses larger records
            break
        most_bytes = min(4 * most_bytes, RECORD_BYTES)
    end = end or len(sample.data)
    return TextSample(sample.data[:end], sample.share * end / len(sample.data))


def even_files(paths: list[str]) -> list[str]:
    """At most `PIECES` of some files, at even distances."""
    return paths if len(paths) <= PIECES else [paths[len(paths) * piece // PIECES] for piece in range(PIECES)]


def _whole_lines(file: pa.NativeFile, start: int, most_bytes: int) -> bytes:
    """The lines that begin in the bytes from `start`, up to the last one that ends there."""
    file.seek(start)
    data: bytes = file.read(most_bytes)
    begin = data.find(b"\n") + 1 if start else 0
    return data[begin : data.rfind(b"\n") + 1]


def _records_end(data: bytes, quote: bytes) -> int:
    """The end of the last whole record; 0 if there is none. Of UTF-16, whose marks are no single bytes, the end of the data."""
    if data.startswith(_UTF_16):
        return len(data)
    end = data.rfind(b"\n") + 1
    is_open = bool(quote) and data.count(quote, 0, end) % 2 == 1
    while is_open:
        start = data.rfind(b"\n", 0, end - 1) + 1
        is_open ^= data.count(quote, start, end) % 2 == 1
        end = start
    return end


def _read_beginning(path: str, most_bytes: int) -> TextSample:
    """The first bytes of a file, without compression. The share of a compressed file is a guess."""
    size = Path(path).stat().st_size
    if not path.endswith(COMPRESSED):
        with file_errors(path), pa.OSFile(path) as file:
            data = file.read(most_bytes // 4 * 4)  # whole characters of UTF-16
        return TextSample(data, len(data) / size if size else 1.0)
    with content(path) as stream:
        blocks, length = list[bytes](), 0
        while length <= most_bytes and (block := stream.read(2**20)):
            blocks.append(block)
            length += len(block)
    data = b"".join(blocks)
    if length <= most_bytes:
        return TextSample(data, 1.0)
    # A third is what text usually takes; only the size of a training depends on it.
    return TextSample(data[:most_bytes], min(most_bytes / (3 * max(size, 1)), 0.99))

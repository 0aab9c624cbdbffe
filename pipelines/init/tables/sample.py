"""A bounded sample of the files of a table: all of a text, whole lines at even distances, or whole records from its beginning, and its
encoding; and the table as its sample shows it. The same files give the same sample."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pipelines.data.features.auto.column_facts import ColumnFacts
from pipelines.data.sources.files.content import COMPRESSED, content, file_errors
from pipelines.data.sources.text.records import RECORD_BYTES
from pipelines.errors import SourceError

File = TypeVar("File")
WHOLE_BYTES, SAMPLE_BYTES = 32 * 2**20, 16 * 2**20
"""Up to the first, files of text are read whole; of larger ones, the second is read: 100,000 rows say what a million would."""
PIECES = 64
"""Pieces of a large file, and files of a folder, that are read at most, at even distances."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""How its texts begin."""
_ZERO_HEAD_BYTES, _MOST_LINES_WITH_ZERO = 2**18, 0.1
"""Text in which bytes of zero are counted, and the share of lines with one beyond which it is no text. ETL refuses the records of fewer."""
GUESSED = ("windows-1252", "iso-8859-1")
"""Encodings that are assumed of what is not UTF-8."""
_NO_TEXTS = {
    b"PK\3\4": "a zip archive, which is not read as a table; unpack it, or rename it to .xlsx if it is a workbook",
    b"PAR1": "Parquet; rename it to .parquet",
    b"SQLite format 3": "a database of SQLite; rename it to .sqlite",
    b"\xfd7zXZ": "compressed by xz, which is not read; unpack it, or compress it by gzip",
    b"\x1f\x8b": "compressed by gzip; rename it to end in .gz",
    b"\xd0\xcf\x11\xe0": "a file of an old Office; save it as .xlsx or CSV",
}
"""What files are that begin so, and what to do."""


@dataclass(frozen=True)
class SampledTable:
    """A raw table, whose columns are those of a sample."""

    settings: Mapping[str, Any]
    """The table in `source.tables`."""
    columns: Sequence[ColumnFacts]
    rows: int
    """About how many rows there are in all."""
    is_complete: bool
    """Whether the sample has all rows."""
    splits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of files that are splits by their names: the table in `source.tables` of each. Then `settings` is not used."""
    select: str = "*"
    """What the query selects before any other expression: of lines of text, their values."""
    broken: float = 0.0
    """Share of the records that are broken."""
    doubts: tuple[str, ...] = ()
    raw_names: Mapping[str, str] = field(default_factory=dict)
    """Names of columns in the files, by those that the query gives them."""
    derived: tuple[str, ...] = ()
    """Columns that are in no file: the query makes them of others."""
    file_rows: tuple[int, ...] = ()
    """Rows of the sample by file, in the order of the files that were read; empty where nothing asks for them."""

    def column(self, name: str) -> ColumnFacts:
        return next(column for column in self.columns if column.name == name)


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


def most_bytes_per_file(paths: Sequence[str]) -> int:
    """How much to read of each file of text: all, where the files are small together. Compressed ones do not say how large they are."""
    if any(path.endswith(COMPRESSED) for path in paths):
        return WHOLE_BYTES // len(paths)
    total = sum(Path(path).stat().st_size for path in paths)
    return WHOLE_BYTES if total <= WHOLE_BYTES else SAMPLE_BYTES // len(paths)


def sample_text(path: str, most_bytes: int = WHOLE_BYTES) -> TextSample:
    """Read at most about `most_bytes` of a file at even distances. A compressed file, and one of long lines, is read from its beginning.

    Raises SourceError if the file cannot be read."""
    size = Path(path).stat().st_size
    if path.endswith(COMPRESSED):
        return sample_beginning(path, most_bytes)
    with file_errors(path), pa.OSFile(path) as file:
        if size <= most_bytes:
            return TextSample(file.read(), 1.0)
        is_utf_16 = file.read(2) in _UTF_16  # whose line breaks are no single bytes
        pieces = list[bytes]()
        for start in [] if is_utf_16 else [size * piece // PIECES for piece in range(PIECES)]:
            file.seek(start)
            piece = file.read(most_bytes // PIECES)
            pieces.append(piece[piece.find(b"\n") + 1 if start else 0 : piece.rfind(b"\n") + 1])
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


def even_files(files: list[File]) -> list[File]:
    """At most `PIECES` of some files, at even distances."""
    return files if len(files) <= PIECES else [files[len(files) * piece // PIECES] for piece in range(PIECES)]


def even_rows(rows: pa.Table, most_bytes: int) -> pa.Table:
    """Rows at even distances that have about so many bytes."""
    return rows.take(pa.array(range(0, len(rows), max(-(-rows.nbytes // most_bytes), 1)), pa.int64()))


def first_batches(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches up to the one that fills so many bytes."""
    size = 0
    while size < most_bytes and (batch := next(batches, None)) is not None:
        size += batch.nbytes
        yield batch


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


def find_encoding(data: bytes, path: str) -> str:
    """The encoding of a text. Raises SourceError for bytes that are no text, or that are text in two encodings."""
    for start, rule in _NO_TEXTS.items():
        if data.startswith(start):
            raise SourceError(f"{path} is {rule}")
    if data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        raise SourceError(f"{path} is UTF-32, which is not read; save it as UTF-8")
    if data.startswith(_UTF_16):
        return "utf-16"
    lines = data[:_ZERO_HEAD_BYTES].split(b"\n")
    if sum(b"\0" in line for line in lines) > _MOST_LINES_WITH_ZERO * len(lines):
        raise SourceError(f"{path} has bytes of zero, so it is no text of UTF-8; save text as UTF-8, and give an archive its ending")
    try:
        data.decode()
        return "utf-8"
    except UnicodeDecodeError:
        lines = [line for line in data.split(b"\n") if not line.isascii()]
    wrong = [line for line in lines if line.decode(errors="ignore").encode() != line]
    if len(wrong) < len(lines) / 2:
        number = data[: data.find(wrong[0])].count(b"\n") + 1
        raise SourceError(
            f"{path} mixes encodings: most lines are UTF-8, and line {number:,} of those read is not; save it as UTF-8 throughout"
        )
    return "windows-1252" if any(0x80 <= byte < 0xA0 for line in wrong for byte in line) else "iso-8859-1"

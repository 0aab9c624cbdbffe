"""Cuts text into records, and checks each for faults that parsers would hide by guessing.

Spark's readers guess without a report. They accept a quote that is still open at the end of a line or file, and turn invalid bytes into
U+FFFD. They drop the first line of each file as a header without comparing it. So records are cut here, with NumPy on whole
blocks (about 500 MB/s), and Spark parses each record alone.

A quote opens a value only at its start, and closes it only at its end (RFC 4180). Line breaks inside quotes belong to
the value if the dialect allows them; otherwise each line up to the closing quote is refused. A quote that none closes so is stray, and only
its line is refused; with line breaks in values also the lines behind it that may belong to its value.

A JSON document is one record if it is an object, and its elements are records if it is an array. Python's scanner finds the end of an
element, strictly and in C; Spark gets the text of each element unchanged.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.config.messages.words import MOST_SHOWN
from pipelines.data.sources.text import quoting
from pipelines.data.sources.text.quoting import Quoting, RecordEnds
from pipelines.errors import SourceError

RECORD_BYTES = 64 * 2**20
DOCUMENT_BYTES = 2**30
_JOINT = "\x1e"
"""In place of a separator of several characters."""
RECORDS_PER_BATCH = 4096
# Numbers stay text: Spark converts them.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_BLANKS = re.compile(r"[ \t\n\r]*")
SCHEMA = pa.schema({"record": pa.string(), "problem": pa.string(), "line": pa.int64()})
# Faults of records.
NOT_TEXT = "not text of its encoding"
NUL = "NUL character"
QUOTES = "quote that is stray, or does not close on its line (multiLine: true allows line breaks in values, quote: '' takes quotes as text)"
IN_DOUBT = "line that may belong to a value above it, which a quote begins that is stray or does not close"
SURROGATE = "half of a surrogate pair"


@dataclass(frozen=True)
class Dialect(Quoting):
    """The rules by which text is cut into records."""

    encoding: str = "utf-8"
    whole_file: bool = False
    """The file is one record."""
    multiline: bool = False
    """A quoted value may contain line breaks."""
    comment: str = ""
    """Lines that start with it are skipped."""
    keep_blank: bool = False
    """Blank lines are records."""
    skip: int = 0
    """Lines to skip at the start of a file."""
    header: bool = False
    """The first record of a file is a header."""
    columns: tuple[str, ...] = ()
    """The names that the header must have; empty if the header is not compared."""
    width: int = 1
    """Values of a row. With more than one, lines behind a broken value with line breaks are rows if many in a row have as many."""
    json: bool = False
    """Records are JSON. With `whole_file` a file is one document: a record, or an array of records."""

    @property
    def splits(self) -> bool:
        """Whether every line break separates records."""
        return not self.whole_file and not self.multiline and codecs.lookup(self.encoding).name == "utf-8"


def cut(blocks: Iterable[bytes], dialect: Dialect, path: str, start: bool = True, end: bool = True) -> Iterator[pa.RecordBatch]:
    """Batches of SCHEMA: record, its fault (NULL if none), number of its first line in `blocks`, from 1.

    With `start` the blocks are the beginning of a file, with byte order mark and header, and with `end` its end. Raises SourceError for a
    header with other columns, one that lies behind the blocks, a record larger than RECORD_BYTES, and text that is not in a declared
    encoding other than UTF-8."""
    lines, header, is_open = 0, dialect.header and start, False
    skip = dialect.skip if start else 0
    for data, line_ends, ends in _complete(_as_utf8(blocks, dialect.encoding, path, start), dialect, path, skip):
        if dialect.json and dialect.whole_file:
            yield from document_records(data, path)
            continue
        batch, is_open = _check_records(data, line_ends, ends, lines, dialect, is_open)
        lines += len(line_ends)
        if skip:
            batch = batch.filter(pc.greater(batch["line"], skip))
        if header and len(batch):
            if dialect.columns:
                _check_header(batch["record"][0].as_py(), dialect, path)
            batch, header = batch.slice(1), False
        if len(batch):
            yield batch
    if start and not end and (header or lines < skip):
        raise SourceError(
            f"{path}: comments and lines to skip fill its first part, which a task reads by itself; set options: {{multiLine: true}}, and "
            "one task reads the file"
        )


def _as_utf8(blocks: Iterable[bytes], encoding: str, path: str, start: bool) -> Iterator[bytes]:
    """The blocks in UTF-8 without a byte order mark. UTF-8 is passed on unchecked, since its records are checked one by one."""
    codec = codecs.lookup(encoding).name
    decoder = None if codec == "utf-8" else codecs.getincrementaldecoder(codec)("strict")
    for block in blocks:
        if start and decoder is None and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise SourceError(f"{path} is UTF-16; set options: {{encoding: UTF-16, multiLine: true}}")
        try:
            text = block if decoder is None else decoder.decode(block).encode()
        except UnicodeError as error:
            raise SourceError(f"{path} is not {encoding}: {error}; set the encoding it has as options: {{encoding: …}}") from error
        if text:
            yield text.removeprefix(codecs.BOM_UTF8) if start else text
            start = False
    if decoder is not None:
        try:
            decoder.decode(b"", final=True)
        except UnicodeError as error:
            raise SourceError(f"{path} is not {encoding}: {error}; the file breaks off inside a character; get it again") from error


def _complete(blocks: Iterable[bytes], dialect: Dialect, path: str, skip: int) -> Iterator[tuple[bytes, np.ndarray, RecordEnds]]:
    """Blocks of whole records, with the offsets after their line breaks and after their records. Each of the lines that
    are skipped is one, whatever its quotes."""
    limit = DOCUMENT_BYTES if dialect.whole_file else RECORD_BYTES
    pending: list[bytes] = []
    for block in blocks:
        pending.append(block)
        is_large = sum(map(len, pending)) > limit
        if not dialect.whole_file:
            data = b"".join(pending)
            line_ends = _line_ends(data)
            if skip and len(line_ends):
                skipped = line_ends[:skip]
                yield data[: skipped[-1]], skipped, RecordEnds(skipped, are_sound=True)
                data, line_ends, skip = data[skipped[-1] :], line_ends[len(skipped) :] - skipped[-1], skip - len(skipped)
            # A quote that does not close in so many bytes is stray.
            ends = _record_ends(data, line_ends, dialect, may_be_open=not is_large)
            last = ends.offsets[-1] if len(ends.offsets) else 0
            pending = [data[last:]]
            is_large = len(pending[0]) > limit
            if last:
                yield data[:last], line_ends[: np.searchsorted(line_ends, last, side="right")], ends
        if is_large:
            raise SourceError(f"{path}: a record is larger than {limit:,} bytes; the file is not text, or not of lines")
    if (data := b"".join(pending)) or (dialect.whole_file and not dialect.json):  # an empty file is an empty text
        line_ends = np.union1d(_line_ends(data), [len(data)])
        is_record = dialect.whole_file or skip
        ends = RecordEnds(np.array([len(data)]), are_sound=True) if is_record else _record_ends(data, line_ends, dialect, may_be_open=False)
        yield data, line_ends, ends


def _line_ends(data: bytes) -> np.ndarray:
    """Offsets after the breaks of lines: LF, CRLF, or CR alone, which at the end of the data may be the first half of CRLF."""
    codes = np.frombuffer(data, np.uint8)
    line_ends = np.flatnonzero(codes == 10) + 1
    if b"\r" in data:
        returns = np.flatnonzero(codes[:-1] == 13) + 1
        line_ends = np.union1d(line_ends, returns[codes[returns] != 10])
    return line_ends


def _record_ends(data: bytes, line_ends: np.ndarray, dialect: Dialect, may_be_open: bool) -> RecordEnds:
    """Where the records of `data` end, which begins with one. The last may be open, and go on behind the data."""
    if not dialect.quote or dialect.quote.encode() not in data:
        return RecordEnds(line_ends, are_sound=True)
    return quoting.record_ends(data, line_ends, dialect, may_be_open)


def _check_records(
    data: bytes, line_ends: np.ndarray, ends: RecordEnds, lines: int, dialect: Dialect, is_open: bool
) -> tuple[pa.RecordBatch, bool]:
    """Check the records of `data`, without blank records and comments, and whether a broken value may go on behind them. `lines` is the
    number of lines before, and `is_open` whether a broken value may go on in these."""
    record_ends, are_lines = ends.offsets, len(ends.offsets) == len(line_ends)
    texts, problems = decode_records(data, record_ends, dialect.whole_file)
    if dialect.quote and not (ends.are_sound and (are_lines or dialect.multiline) and not is_open):
        refused = ~quoting.well_quoted(texts, data, record_ends, dialect)
        spans = np.diff(np.searchsorted(line_ends, record_ends), prepend=-1) > 1
        refused |= spans & (not dialect.multiline)
        if (refused & spans).any():
            record_ends = np.union1d(record_ends, line_ends[refused[np.searchsorted(record_ends, line_ends)]])
            refused = refused[np.searchsorted(ends.offsets, record_ends)]
            texts, problems = decode_records(data, record_ends, dialect.whole_file)
        problems = set_reason(refused, QUOTES, problems)
        if dialect.multiline:
            doubtful, is_open = quoting.lines_in_doubt(texts, refused, dialect.width, dialect, is_open)
            problems = set_reason(doubtful, IN_DOUBT, problems)
        are_lines = len(record_ends) == len(line_ends)
    if b"\0" in data:
        problems = set_reason(pc.match_substring(texts, "\0"), NUL, problems)
    if dialect.json and b"\\u" in data:
        problems = set_reason(half_surrogates(texts), SURROGATE, problems)
    first_lines = np.arange(len(texts)) if are_lines else np.searchsorted(line_ends, np.concatenate(([0], record_ends[:-1])), side="right")
    batch = pa.record_batch([texts, problems, pa.array(first_lines + lines + 1)], schema=SCHEMA)
    if not dialect.keep_blank:
        is_record = pc.greater(pc.binary_length(pc.ascii_trim_whitespace(texts)), 0)
        batch = batch.filter(pc.and_not(is_record, pc.starts_with(texts, dialect.comment)) if dialect.comment else is_record)
    return batch, is_open


def _check_header(record: str, dialect: Dialect, path: str) -> None:
    """Raises SourceError unless the header has the schema's columns in their order."""
    names, columns = split_fields(record, dialect), dialect.columns
    if [name.strip().casefold() for name in names] == [name.casefold() for name in columns]:
        return
    difference = f"{', '.join(names)}; its schema has {', '.join(columns)}"
    if max(len(names), len(columns)) > MOST_SHOWN:
        pairs = enumerate(zip_longest(names, columns, fillvalue="none"))
        place, (name, column) = next((place, pair) for place, pair in pairs if pair[0].strip().casefold() != pair[1].casefold())
        difference = f"{len(names):,}, and its schema {len(columns):,}, which differ first at column {place + 1}: {name!r}, not {column!r}"
    raise SourceError(
        f"{path} has columns {difference}. "
        "Name them in the file's order, or set options: {enforceSchema: true} to go by position whatever the header says"
    )


def split_fields(record: str, dialect: Dialect) -> list[str]:
    """The texts between the separators of a record; of one that cannot be taken apart, the record."""
    # Python's reader takes one character.
    joint = dialect.separator if len(dialect.separator) == 1 else _JOINT
    quotes: dict[str, Any] = {"quotechar": dialect.quote} if dialect.quote else {"quoting": csv.QUOTE_NONE}
    record = record.replace(dialect.separator, joint)
    try:
        fields = next(csv.reader([record], delimiter=joint, skipinitialspace=dialect.ignore_leading_blanks, **quotes), [])
    except csv.Error:
        return [record[:200]]
    return [field.replace(joint, dialect.separator) for field in fields]


def decode_records(data: bytes, ends: np.ndarray, keep_line_breaks: bool) -> tuple[pa.StringArray, pa.StringArray]:
    """Records without their line breaks, and the faults of their bytes; invalid bytes are shown as `\\xff`."""
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    texts = pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    problems = pa.nulls(len(ends), pa.string())
    try:
        data.decode()
    except UnicodeDecodeError:
        raw = texts.cast(pa.binary()).to_pylist()
        escaped = [record.decode("utf-8", "backslashreplace") for record in raw]
        problems = set_reason([text.encode() != record for text, record in zip(escaped, raw, strict=True)], NOT_TEXT, problems)
        texts = pa.array(escaped)
    return (texts if keep_line_breaks else pc.ascii_rtrim(texts, "\r\n")), problems


def set_reason(mask: object, reason: str, problems: pa.StringArray) -> pa.StringArray:
    """Set `reason` for the records of a mask that have none yet."""
    return pc.coalesce(problems, pc.if_else(mask if isinstance(mask, pa.Array) else pa.array(mask), reason, None))


def half_surrogates(texts: pa.StringArray) -> np.ndarray:
    """Whether a record has an escape of a lone surrogate, which is no text in any encoding."""
    mask = pc.match_substring_regex(texts, r"\\u[dD][89a-fA-F]").to_numpy(zero_copy_only=False)
    for index in np.flatnonzero(mask):
        mask[index] = has_half_surrogate(texts[index].as_py())
    return mask


def has_half_surrogate(text: str) -> bool:
    bare = re.sub(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}", "", text.replace("\\\\", ""))
    return re.search(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", bare) is not None


def document_records(data: bytes, path: str) -> Iterator[pa.RecordBatch]:
    """Batches of SCHEMA, of a JSON document. Raises SourceError with the line if the file is not one."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8: {error}; JSON must be, or set the encoding it has as options: {{encoding: …}}") from error
    elements = _elements(text, path)
    while chunk := list(islice(elements, RECORDS_PER_BATCH)):
        record, line = zip(*chunk, strict=True)
        problem = [SURROGATE if has_half_surrogate(text) else None for text in record]
        yield pa.record_batch([pa.array(record, pa.string()), pa.array(problem, pa.string()), pa.array(line, pa.int64())], schema=SCHEMA)


def _elements(text: str, path: str) -> Iterator[tuple[str, int]]:
    """The text of each record, and its first line."""
    at = _after_blanks(text, 0)
    if at == len(text):
        return
    array = text[at] == "["
    at = _after_blanks(text, at + 1) if array else at
    line, counted = 1, 0
    more = not array or text[at : at + 1] != "]"
    while more:
        try:
            end = _SCANNER.raw_decode(text, at)[1]
        except json.JSONDecodeError as error:
            raise _not_json(path, text, error.pos, error.msg) from error
        except RecursionError as error:
            raise _not_json(path, text, at, "nested too deeply") from error
        line, counted = line + text.count("\n", counted, at), at
        yield text[at:end], line
        end = _after_blanks(text, end)
        more = array and text[end : end + 1] == ","
        at = _after_blanks(text, end + 1) if more else end
    if array:
        if text[at : at + 1] != "]":
            raise _not_json(path, text, at, "expecting ',' or ']'")
        at = _after_blanks(text, at + 1)
    if at != len(text):
        raise _not_json(path, text, at, "text after the end; several records need one line each, and multiLine: false")


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()


def _not_json(path: str, text: str, at: int, reason: str) -> SourceError:
    line = text.count("\n", 0, at) + 1
    return SourceError(f"{path}:{line} is not JSON: {reason}, at {text[at : at + 40]!r}; mend the file or leave it out")

"""The records of a JSON document: the document if it is an object, its elements if it is an array.

Python's scanner finds the end of an element, strictly and in C; Spark gets the text of each element unchanged.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from pipelines.data.sources.text.csv_validation import SURROGATE, has_half_surrogate
from pipelines.errors import SourceError

RECORDS_PER_BATCH = 4096
# Numbers stay text: Spark converts them.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_BLANKS = re.compile(r"[ \t\n\r]*")


def records(data: bytes, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches of (record, problem, line). Raises SourceError with the line if the file is not one JSON document."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is not UTF-8: {error}; JSON must be, or set the encoding it has as options: {{encoding: …}}") from error
    elements = _elements(text, path)
    while chunk := list(islice(elements, RECORDS_PER_BATCH)):
        record, line = zip(*chunk, strict=True)
        problem = [SURROGATE if has_half_surrogate(text) else None for text in record]
        yield pa.record_batch([pa.array(record, pa.string()), pa.array(problem, pa.string()), pa.array(line, pa.int64())], schema=schema)


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
        end = _end(text, at, path)
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


def _end(text: str, at: int, path: str) -> int:
    """The end of the value that begins at `at`."""
    try:
        return _SCANNER.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        raise _not_json(path, text, error.pos, error.msg) from error
    except RecursionError as error:
        raise _not_json(path, text, at, "nested too deeply") from error


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()


def _not_json(path: str, text: str, at: int, reason: str) -> SourceError:
    line = text.count("\n", 0, at) + 1
    return SourceError(f"{path}:{line} is not JSON: {reason}, at {text[at : at + 40]!r}; mend the file or leave it out")

"""Finds refused rows by their keys, and writes files of the quarantine again without them.

Rows that the query gave stand there as JSON with all their columns, whose values are compared. A malformed record is the text that no
format or schema took: it belongs to a key if each of the key's values stands in it as a word, so that a record of somebody else may go too.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from pipelines.data.versions import storage
from pipelines.data.versions.manifest import RESTORE
from pipelines.errors import CorruptError
from pipelines.lifecycle.erasure.erased_keys import Key

_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{4})+|\\.")
"""Escapes of JSON; of characters beyond the 16 bits of one, two that belong together."""


def find_records(filesystem: FileSystem, path: str, records: Sequence[Mapping[str, Any]], keys: Sequence[Key]) -> tuple[int, ...]:
    """The numbers of the rows of a quarantine file that are of one of the keys: `records` has their values in JSON, `keys` their texts.
    Raises CorruptError if the file is damaged."""
    table = read_file_rows(filesystem, path)
    key_values = {_values(record, list(record)) for record in records}
    names = list(records[0]) if records else []
    are_in_text = [text_matcher([key]) for key in keys] if table["source"].null_count < len(table) else []
    matches = []
    for number, (record, source) in enumerate(zip(table["record"].to_pylist(), table["source"].to_pylist(), strict=True)):
        if source is None:
            is_match = _values(_parse(record), names) in key_values
        else:
            is_match = any(is_in_text(record or "") for is_in_text in are_in_text)
        if is_match:
            matches.append(number)
    return tuple(matches)


def text_matcher(keys: Iterable[Key]) -> Callable[[str], bool]:
    """A function that says whether a text has all values of one of the keys as words, also as JSON and CSV escape them."""
    values = [[unicodedata.normalize("NFC", value.strip()) for value in key.values() if value.strip()] for key in keys]
    patterns = [[re.compile(rf"(?<!\w){re.escape(value)}(?!\w)") for value in words] for words in values]

    def is_in_text(text: str) -> bool:
        readings = _readings(text)
        return any(bool(words) and all(word.search(readings) for word in words) for words in patterns)

    return is_in_text


def _readings(text: str) -> str:
    """A text as it is, and as a reader of CSV and one of JSON would take its escapes, one after the other."""
    readings = [text, text.replace('""', '"'), _ESCAPE.sub(_unescape, text)]
    return "\n".join(unicodedata.normalize("NFC", reading) for reading in dict.fromkeys(readings))


def _unescape(escape: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{escape[0]}"'))
    except ValueError:  # no escape of JSON
        return escape[0][1:]


def write_without(filesystem: FileSystem, path: str, target: str, rows: Sequence[int]) -> None:
    """Write a file of the quarantine as `target`, without the rows with these numbers."""
    with storage.store_errors(target):
        storage.make_folder(filesystem, target.rpartition("/")[0])
        if not rows:
            filesystem.copy_file(path, target)
            return
        table = read_file_rows(filesystem, path)
        keep = np.ones(len(table), bool)
        keep[list(rows)] = False
        pq.write_table(table.filter(pa.array(keep)), target, filesystem=filesystem)


def read_file_rows(filesystem: FileSystem, path: str) -> pa.Table:
    """All rows of a file. Raises CorruptError if it is damaged."""
    try:
        with filesystem.open_input_file(path) as source:
            return pq.ParquetFile(source).read(use_threads=False)
    except (OSError, pa.ArrowException) as error:
        storage.ask(filesystem, path)
        raise CorruptError(f"{path}: {error}; {RESTORE}") from error


def _parse(record: str | None) -> dict[str, Any]:
    try:
        values = json.loads(record or "")
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _values(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """The values of the key as one text, in which 1, true and "1" differ, and 0.0 and -0.0 do not."""
    values = (record.get(name) for name in names)
    return json.dumps([value + 0.0 if isinstance(value, float) else value for value in values])

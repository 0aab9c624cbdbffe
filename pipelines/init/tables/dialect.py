"""How the text of a table is written: its separator, quotes, blanks and header."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow.compute as pc

from pipelines.data.sources.text import records

HEAD_BYTES = 2**18
"""Text that decides the dialect, if it has `LEAST_LINES`."""
LEAST_LINES = 50
SEPARATORS = ("\t", ";", "|", ",", " ")
"""In this order, where several divide the lines equally well: 1,5;2,5 is two numbers."""
MARKS = ("?", "NA", "N/A", "n/a", "null", "NULL", "None", "nan", "NaN", "\\N", "-", "#N/A")
"""Texts that stand for a missing value."""
_NUMBER = re.compile(r"[ \t]*[+-]?(?:[0-9]+[.,]?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class TableDialect:
    """The dialect of a table of text, in the words of Spark's options."""

    encoding: str = "utf-8"
    separator: str = ","
    quote: str = '"'
    escape: str = ""
    is_multiline: bool = False
    has_blanks: bool = False
    """Whether values have blanks around them."""
    is_aligned: bool = False
    """Whether any run of blanks separates values, which is no CSV: the query splits the lines."""
    has_header: bool = False
    divides: bool = True
    """Whether it divides nine of ten lines into equally many values."""

    @property
    def cutting(self) -> records.Dialect:
        """How ETL cuts such files into records."""
        return records.Dialect(
            encoding=self.encoding,
            multiline=self.is_multiline,
            quote="" if self.is_aligned else self.quote,
            escape=self.escape,
            separator=self.separator,
            ignore_leading_blanks=self.has_blanks,
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options of Spark's reader that differ from their defaults."""
        encoding = {"encoding": self.encoding} if self.encoding != "utf-8" else {}
        if self.is_aligned:
            return encoding
        return {
            **({"header": True} if self.has_header else {}),
            **({"sep": self.separator} if self.separator != "," else {}),
            **({"quote": self.quote} if self.quote != '"' else {}),
            **({"escape": self.escape} if self.escape else {}),
            **({"multiLine": True} if self.is_multiline else {}),
            **({"ignoreLeadingWhiteSpace": True, "ignoreTrailingWhiteSpace": True} if self.has_blanks else {}),
            **encoding,
        }


def find_dialect(data: bytes, encoding: str, is_cut: bool) -> TableDialect:
    """The dialect that divides most of the first lines into equally many values, and reads most of their quotes. More lines decide where
    they are long, or seem to be those of one quoted value. `is_cut` if the data are the beginning of more."""
    most, head = HEAD_BYTES, data[:0]
    while len(head) < len(data) and (head.count(b"\n") < LEAST_LINES or _may_be_inside_of_quotes(head)):
        head = data if len(data) <= most else data[: data.rfind(b"\n", 0, most) + 1] or data[:most]
        most *= 4
    return _dialect_of_lines(head, encoding, is_cut or len(head) < len(data))


def _may_be_inside_of_quotes(head: bytes) -> bool:
    """Whether both the middle and the end of the text are inside of quotes, if it has no stray one."""
    return all(head.count(b'"', 0, end) % 2 for end in (len(head) // 2, len(head)))


def _dialect_of_lines(head: bytes, encoding: str, is_cut: bool) -> TableDialect:
    """The dialect of some lines. `is_cut` if these are the first of more."""
    plain = TableDialect()
    lines = [line for line in _LINE_BREAK.split(head.decode(encoding, "replace")) if line.strip()]
    scored = [(_consistency(lines, candidate), candidate) for candidate in _quotings(lines, plain, is_cut)]
    best = max(score for score, _ in scored)
    dialect = next(candidate for score, candidate in scored if score >= best - 0.005)
    if dialect.separator == " " and _is_aligned(lines):
        dialect = replace(dialect, is_aligned=True, quote="", has_blanks=False)
    elif best < 0.9:
        dialect = replace(dialect if best > 0 else plain, divides=False)
    dialect = replace(dialect, has_blanks=not dialect.is_aligned and _has_blanks(lines, dialect), encoding=encoding)
    return replace(dialect, has_header=_has_header(lines, dialect))


def split_lines(lines: list[str], dialect: TableDialect) -> Iterator[list[str]]:
    """The values of each line."""
    if dialect.is_aligned:
        yield from (line.split() for line in lines)
        return
    settings: dict[str, Any] = {"quotechar": dialect.quote} if dialect.quote else {"quoting": csv.QUOTE_NONE}
    settings |= {"escapechar": dialect.escape, "doublequote": False} if dialect.escape else {}
    usual_limit = csv.field_size_limit(records.RECORD_BYTES)  # of 131,072 characters, which a text may exceed
    try:
        yield from csv.reader(lines, delimiter=dialect.separator, skipinitialspace=dialect.has_blanks, **settings)
    except csv.Error:
        return
    finally:
        csv.field_size_limit(usual_limit)


def _quotings(lines: list[str], plain: TableDialect, is_cut: bool) -> Iterator[TableDialect]:
    """Dialects by separator, each with the quotes that its lines have. `is_cut` if these are the first lines of more."""
    text = "\n".join(lines)
    for separator in SEPARATORS:
        divided = replace(plain, separator=separator)
        if '"' not in text:
            single = re.search(rf"(^|{re.escape(separator)})'[^'\n]*'({re.escape(separator)}|$)", text, re.MULTILINE)
            yield replace(divided, quote="'") if single else divided
            continue
        refused = _quote_fault_count(text, divided, is_cut)
        if not refused:
            yield divided
            continue
        readings = (replace(divided, is_multiline=True), replace(divided, escape="\\"), replace(divided, quote=""))
        yield min((divided, *readings), key=lambda other: _quote_fault_count(text, other, is_cut) + (other.quote == ""))


def _quote_fault_count(text: str, dialect: TableDialect, is_cut: bool) -> int:
    """Records that ETL would refuse for their quotes. A value of several lines may be open where the text is cut; one that is open through
    most of the text has a stray quote instead."""
    batches = list(records.cut([text.encode()], dialect.cutting, ""))
    if is_cut and dialect.is_multiline and 2 * (pc.sum(pc.binary_length(batches[-1]["record"])).as_py() or 0) < len(text):
        batches.pop()
    return sum(len(batch) - batch["problem"].null_count for batch in batches)


def _consistency(lines: list[str], dialect: TableDialect) -> float:
    """The share of the lines with the most frequent number of values; 0 if that is one value."""
    widths = Counter(len(values) for values in split_lines(lines, dialect))
    if not widths:
        return 0
    width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
    return count / widths.total() if width > 1 else 0


def _is_aligned(lines: list[str]) -> bool:
    """Whether lines that start or go on with several blanks have equally many values."""
    widths = Counter(len(line.split()) for line in lines)
    return any(re.search(r"^ |  |\t", line) for line in lines) and widths.most_common(1)[0][1] >= 0.9 * len(lines)


def _has_blanks(lines: list[str], dialect: TableDialect) -> bool:
    """Whether numbers or most values have blanks around them."""
    cells = [cell for values in islice(split_lines(lines, dialect), 200) for cell in values if cell.strip()]
    padded = [cell for cell in cells if cell != cell.strip()]
    return len(padded) > len(cells) / 2 or any(_NUMBER.fullmatch(cell.strip()) for cell in padded)


def _has_header(lines: list[str], dialect: TableDialect) -> bool:
    """Whether the first line has names: no number, no value twice, and none that stands in its column again below a column of texts."""
    rows = list(islice(split_lines(lines, dialect), 2_000))
    if len(rows) < 2:
        return False
    names = [name.strip() for name in rows[0]]
    below = [row for row in rows[1:] if len(row) == len(names)]
    if not below or any(not name for name in names[1:]) or len(set(names)) < len(names):
        return False
    if any(_NUMBER.fullmatch(name) or name in MARKS for name in names):
        return False
    has_numbers = any(all(_NUMBER.fullmatch(row[place]) or not row[place] for row in below) for place in range(len(names)))
    return has_numbers or not any(row[place].strip() == name for place, name in enumerate(names) for row in below)

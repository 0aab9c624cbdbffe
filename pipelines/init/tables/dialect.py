"""How the text of a table is written: its separator, quotes and escape, by how many of the first lines become records that are alike.

Each candidate cuts the lines into records as ETL does. It scores the share of lines in sound records of the most frequent width, times how
well their values look like values (the idea of van den Burg, Nazábal and Sutton: Wrangling messy CSV files by detecting row and type
patterns, 2019). One broken record lowers the score of a candidate by its own lines, and so never decides.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from pipelines.data.sources.text import quoting, records

HEAD_BYTES = 2**18
"""Text that decides the dialect, if it has `LEAST_LINES`."""
LEAST_LINES = 50
SEPARATORS = ("\t", ";", "|", ",", " ")
"""In this order, where several score the same: 1,5;2,5 is two numbers."""
MARKS = (
    "?", "NA", "N/A", "n/a", "n.a.", "null", "NULL", "None", "nan", "NaN", "NAN", "-nan", "-NaN", "<NA>", "NaT", "\\N", "-", "--", ".",
    "..", "#N/A", "#N/A N/A", "#NA", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!", "inf", "-inf", "Inf", "-Inf", "Infinity",
    "-Infinity",
)  # fmt: skip
"""Texts that stand for a missing value, and among numbers for one that is none, as a division by zero gives."""
_RARE = 0.8
"""What the score of blanks and of unusual separators is worth, which often divide values too."""
_MOST_SCORED = 300
"""Records whose values are looked at."""
_NO_QUOTES_PENALTY = 1.5
"""Lines that must speak for quotes without meaning: one stray quote does not."""
_JOINT = "\x1e"
"""In place of a separator of several characters, which Python's reader does not take."""
NUMBER = re.compile(
    r"[^\w\s]?[ \t]*[(+-]?[^\w\s]?(?:[0-9][0-9.,' \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"[ \t]*[-)%kMB€$£]?"
)
"""A number in any of the forms that people write, with a sign of money or percent."""
MOMENT = re.compile(
    r"[0-9]{1,4}[-/.][0-9A-Za-z]{1,9}[-/.][0-9]{1,4}(?:[ T][0-9]{1,2}:[0-9]{2}.*)?|[0-9]{1,2}:[0-9]{2}(?::[0-9.]+)?(?: ?[AaPp][Mm])?"
    r"|[A-Z][a-z]{2,8}[.]? [0-9]{1,2}, [0-9]{4}|[A-Za-z]{3,9}[-/][0-9]{1,2}[-/][0-9]{4}"
)
ALIGNED_CELL = r'"[^"]*"|[^\s]+'
"""A value between blanks, for Python and for Java."""
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
    divides: bool = True
    """Whether it divides nine of ten lines into equally many values."""
    width: int = 1
    """The most frequent number of values."""
    comment: str = ""
    skip: int = 0
    """Lines before the header, or before the rows if it is not read as one."""
    has_header: bool = False
    """Whether the first record behind them is a header."""

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
            comment=self.comment,
            skip=self.skip,
            header=self.has_header,
            width=self.width,
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options of Spark's reader that differ from their defaults."""
        encoding = {"encoding": self.encoding} if self.encoding != "utf-8" else {}
        if self.is_aligned:
            return encoding
        return {
            **({"comment": self.comment} if self.comment else {}),
            **({"skipRows": self.skip} if self.skip else {}),
            **({"header": True} if self.has_header else {}),
            **({"sep": self.separator} if self.separator != "," else {}),
            **({"quote": self.quote} if self.quote != '"' else {}),
            **({"escape": self.escape} if self.escape else {}),
            **({"multiLine": True} if self.is_multiline else {}),
            **({"ignoreLeadingWhiteSpace": True, "ignoreTrailingWhiteSpace": True} if self.has_blanks else {}),
            **encoding,
        }


class TextRecord(NamedTuple):
    """A record of the first lines."""

    line: int
    """Of its first line, from 1."""
    text: str
    values: list[str]
    """Empty if its quotes are broken."""


def find_dialect(data: bytes, encoding: str, is_cut: bool, skip: int = 0) -> tuple[TableDialect, list[TextRecord]]:
    """The dialect with the highest score, without a header yet, and the first records in it. More lines decide where they are long, or
    where one value may have most of them. `is_cut` if the data are the beginning of more."""
    most, head = HEAD_BYTES, data[:0]
    usual = quoting.Quoting(",", '"', "", True)
    # A value that began in the first half may not have ended yet.
    while len(head) < len(data) and (head.count(b"\n") < LEAST_LINES or 0 < _records_end(head, usual) < len(head) / 2):
        head = data if len(data) <= most else data[: data.rfind(b"\n", 0, most) + 1] or data[:most]
        most *= 4
    text = head.decode(encoding, "replace").removeprefix("\ufeff").encode()
    candidates = [replace(candidate, skip=skip) for candidate in _candidates(text.decode())] or [TableDialect(skip=skip)]
    scored = [(_score(text, candidate, is_cut or len(head) < len(data)), candidate) for candidate in candidates]
    best = max(score for (score, _, _), _ in scored)
    (score, share, width), dialect = next(scored_one for scored_one in scored if scored_one[0][0] >= best - 0.005)
    lines = [line for line in _LINE_BREAK.split(text.decode()) if line.strip()]
    aligned_width = Counter(len(split_aligned(line)) for line in lines).most_common(1)[0][0] if lines else 0
    if dialect.separator in (" ", "\t") and aligned_width > 1 and _is_aligned(lines, dialect.separator):
        quote = '"' if re.search(r'(?:^|\s)"[^"]+"(?:\s|$)', text.decode()) else ""
        dialect = TableDialect(separator=" ", quote=quote, is_aligned=True, width=aligned_width)
    elif score <= 0:
        dialect = TableDialect(divides=False)
    else:
        dialect = replace(dialect, divides=share >= 0.9, width=width)
    sample = list(first_records(text, dialect))
    if sample and not sample[0].values and dialect.quote and not dialect.is_multiline:  # names may be the only values of several lines
        multiline = replace(dialect, is_multiline=True)
        if len(next(first_records(text, multiline)).values) == dialect.width:
            dialect, sample = multiline, list(first_records(text, multiline))
    if not dialect.is_aligned and not dialect.has_blanks and _has_blanks(sample):
        dialect = replace(dialect, has_blanks=True)
        sample = list(first_records(text, dialect))
    return replace(dialect, encoding=encoding), sample


def first_records(text: bytes, dialect: TableDialect) -> Iterator[TextRecord]:
    """All records of a text of UTF-8, broken ones too, without what the dialect skips."""
    for batch in records.cut([text], replace(dialect.cutting, encoding="utf-8"), ""):
        texts, problems, lines = (batch[name].to_pylist() for name in ("record", "problem", "line"))
        sound = split_records((text for text, problem in zip(texts, problems, strict=True) if problem is None), dialect)
        yield from (
            TextRecord(line, text, next(sound, []) if problem is None else [])
            for line, text, problem in zip(lines, texts, problems, strict=True)
        )


def split_aligned(line: str) -> list[str]:
    """The values of a line of aligned values; one in quotes may have blanks."""
    return [cell.strip('"') for cell in re.findall(ALIGNED_CELL, line)]


def split_records(texts: Iterable[str], dialect: TableDialect) -> Iterator[list[str]]:
    """The values of each sound record."""
    if dialect.is_aligned:
        yield from (split_aligned(text) if dialect.quote else text.split() for text in texts)
        return
    joint = dialect.separator if len(dialect.separator) == 1 else _JOINT
    settings: dict[str, Any] = {"quotechar": dialect.quote} if dialect.quote else {"quoting": csv.QUOTE_NONE}
    settings |= {"escapechar": dialect.escape, "doublequote": False} if dialect.escape else {}
    texts = texts if joint == dialect.separator else (text.replace(dialect.separator, joint) for text in texts)
    usual_limit = csv.field_size_limit(records.RECORD_BYTES)  # of 131,072 characters, which a text may exceed
    try:
        for values in csv.reader(texts, delimiter=joint, skipinitialspace=dialect.has_blanks, **settings):
            yield values if joint == dialect.separator else [value.replace(joint, dialect.separator) for value in values]
    except csv.Error:
        return
    finally:
        csv.field_size_limit(usual_limit)


def _records_end(text: bytes, quotes: quoting.Quoting) -> int:
    """The end of the last record whose values have surely ended in the text; 0 if there is none."""
    line_ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 10) + 1
    ends = quoting.record_ends(text, line_ends, quotes, may_be_open=True).offsets
    return int(ends[-1]) if len(ends) else 0


def _candidates(text: str) -> Iterator[TableDialect]:
    """Dialects that the text may have, those that are more usual first."""
    lines = [line for line in _LINE_BREAK.split(text[: 2**16]) if line.strip()]
    for separator in _separators(lines):
        if separator not in text:
            continue
        blanks = text.count(f"{separator} ") > text.count(separator) / 2 and separator != " "
        divided = TableDialect(separator=separator, has_blanks=blanks)
        sep = re.escape(separator)
        for quote in ('"', "'"):
            has_quoted = re.search(rf"(?:^|{sep}) ?{quote}[^{quote}]*{quote}(?:{sep}|\r?$)", text, re.MULTILINE)
            if quote == '"' or has_quoted:
                escapes = ("", "\\") if f"\\{quote}" in text else ("",)
                quoted = replace(divided, quote=quote)
                yield from (
                    replace(quoted, escape=escape, is_multiline=multiline)
                    for escape in escapes
                    for multiline in (False, True)[: 1 + (quote in text)]
                )
        if '"' in text:
            yield replace(divided, quote="")


def _separators(lines: list[str]) -> list[str]:
    """The usual separators, and signs that a quarter of the lines have besides those that values have; twice, where they stand so."""
    signs = {sign for line in lines[:20] for sign in line if sign.isascii() and not sign.isalnum() and sign not in "\r.+-_/\"'\\()%$"}
    often = [sign for sign in sorted(signs - set(SEPARATORS)) if sum(sign in line for line in lines) > len(lines) / 4]
    doubled = [sign for sign in sorted(signs - {" ", "\t", ",", ";"}) if sum(sign * 2 in line for line in lines) > len(lines) / 4]
    is_always = "|" in doubled and sum("|" in line.replace("||", "") for line in lines) < len(lines) / 20
    return [*(sign * 2 for sign in doubled), *(sign for sign in SEPARATORS if not (is_always and sign == "|")), *often]


def _score(text: bytes, dialect: TableDialect, is_cut: bool) -> tuple[float, float, int]:
    """The score of a dialect, the share of lines that it makes sound records of equal width of, and that width."""
    if is_cut and dialect.is_multiline:  # a value may be open at the end
        text = text[: _records_end(text, dialect.cutting) or len(text)]
    sample = list(first_records(text, dialect))
    widths = Counter(len(record.values) for record in sample if record.values)
    if not widths:
        return 0, 0, 1
    width = max(widths, key=lambda width: (widths[width], width))
    if width == 1:
        return 0, 0, 1
    alike = [
        record
        for record in sample
        if len(record.values) == width and not any(len(value) > 1 and value[0] == value[-1] in ('"', "'") for value in record.values)
    ]
    penalty = _NO_QUOTES_PENALTY if not dialect.quote else 0
    share = max(sum(map(_line_count, alike)) - penalty, 0) / max(sum(map(_line_count, sample)), 1)
    sampled = alike[:: max(len(alike) // _MOST_SCORED, 1)]
    quality = sum(sum(map(_quality, record.values)) / width for record in sampled) / max(len(sampled), 1)
    is_rare = dialect.separator not in SEPARATORS[:-1]
    return share * quality * (1 - 0.5 / width) * (_RARE if is_rare else 1), share, width


def _line_count(record: TextRecord) -> int:
    return 1 + record.text.count("\n") + record.text.count("\r") - record.text.count("\r\n")


def _quality(value: str) -> float:
    """How well a text looks like one value: a number, a moment, nothing, or words without separators of other dialects."""
    value = value.strip()
    if value[:1] in ('"', "'"):
        return 0.2  # a part of a quoted value
    if not value:
        return 0.5
    if value in MARKS or NUMBER.fullmatch(value) or MOMENT.fullmatch(value):
        return 1.0
    if not any(sign in value for sign in "\t;|,"):
        return 0.9
    return 0.7 if re.search(r"[^\W\d]{3}", value) else 0.0


def _is_aligned(lines: list[str], separator: str) -> bool:
    """Whether lines that start or go on with several blanks have equally many values. Tabs divide them better, unless nearly all lines have
    numbers with several blanks between them."""
    widths = Counter(len(split_aligned(line)) for line in lines)
    padding, least = (r"^ |  |\t", 0.01) if separator == " " else (r"[0-9] {2,}[0-9]", 0.9)
    padded = sum(re.search(padding, line) is not None for line in lines)
    return padded > max(1, least * len(lines)) and widths.most_common(1)[0][1] >= 0.9 * len(lines)


def _has_blanks(sample: list[TextRecord]) -> bool:
    """Whether numbers or most values have blanks around them."""
    cells = [cell for record in islice(sample, 200) for cell in record.values if cell.strip()]
    padded = [cell for cell in cells if cell != cell.strip()]
    return len(padded) > len(cells) / 2 or any(NUMBER.fullmatch(cell.strip()) for cell in padded)

"""Ten clean tables of different kinds, and what pollutes their files: pure functions of a table, a row and a seed."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from polluted.forms import DATES, NUMBERS, Form

ROWS = 150
Value = float | str | date | datetime | None
"""Of a cell: a number, a text, a day, a moment, or nothing."""
WORDS = [
    "amber",
    "river",
    "stone",
    "quiet",
    "morning",
    "copper",
    "field",
    "window",
    "letter",
    "garden",
    "silver",
    "winter",
    "harbor",
    "candle",
    "bridge",
    "forest",
]


@dataclass(frozen=True)
class Clean:
    """A table as it should be read."""

    name: str
    columns: dict[str, list[Value]]

    @property
    def rows(self) -> list[tuple[Value, ...]]:
        return list(zip(*self.columns.values(), strict=True))


@dataclass(frozen=True)
class Style:
    """How a table is written."""

    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    """What stands before a quote within quotes."""
    quotes_all: bool = False
    blank: str = ""
    """What follows each separator."""
    line_end: str = "\n"
    encoding: str = "utf-8"
    has_header: bool = True
    ends_last_line: bool = True


@dataclass(frozen=True)
class Polluted:
    """A polluted file of a table."""

    pollution: str
    case: str
    """The table, the row and what else tells the case from others."""
    clean: Clean
    style: Style
    lines: Sequence[str]
    broken_rows: frozenset[int] = frozenset()
    """Rows that may be refused."""
    broken_lines: frozenset[int] = frozenset()
    """Lines, from 1, that an error may name if all is refused."""
    extra_columns: int = 0
    """Columns without values behind the others."""
    names: Sequence[str] = ()
    """The names of the columns; empty if any will do."""

    @property
    def numbered(self) -> Iterator[tuple[range, str]]:
        """The lines with their numbers in the file, from 1; of a line with breaks in a value, several."""
        first = 1
        for line in self.lines:
            breaks = line.count("\n")
            yield range(first, first + breaks + 1), line
            first += breaks + 1

    @property
    def changed_lines(self) -> set[int]:
        """Numbers of the lines that the clean table's file has not."""
        sound = Counter(plain(self.clean, self.style).lines)
        return {number for numbers, line in self.numbered if line not in sound for number in numbers}

    def lines_of_row(self, row: int) -> set[int]:
        """Numbers of the lines that a row of the clean table has, if it is unchanged."""
        sound = plain(self.clean, self.style)
        clean_line = sound.lines[line_place(sound, row)]
        return {number for numbers, line in self.numbered if line == clean_line for number in numbers}

    @property
    def content(self) -> bytes:
        end = self.style.line_end
        return (end.join(self.lines) + end * self.style.ends_last_line).encode(self.style.encoding)


def clean_tables() -> list[Clean]:
    chance = random.Random(7)

    def numbers(low: float, high: float, digits: int = 2) -> list[Value]:
        return [round(chance.uniform(low, high), digits) for _ in range(ROWS)]

    def whole(low: int, high: int) -> list[Value]:
        return [float(chance.randint(low, high)) for _ in range(ROWS)]

    def choices(*values: str) -> list[Value]:
        return [chance.choice(values) for _ in range(ROWS)]

    def texts(words: int, joints: Sequence[str] = (" ",)) -> list[Value]:
        return ["".join(chance.choice(WORDS) + chance.choice(joints) for _ in range(words)) + chance.choice(WORDS) for _ in range(ROWS)]

    def gaps(values: list[Value], share: float) -> list[Value]:
        return [None if chance.random() < share else value for value in values]

    days: list[Value] = [date(2021, 3, 1) + timedelta(days=chance.randint(0, 900)) for _ in range(ROWS)]
    moments: list[Value] = [datetime(2021, 3, 1) + timedelta(minutes=chance.randint(0, 900_000)) for _ in range(ROWS)]
    tables: dict[str, dict[str, list[Value]]] = {
        "numbers": {"rooms": whole(1, 9), "area": numbers(20, 200), "price": whole(90_000, 900_000), "ratio": numbers(-1, 1, 4)},
        "commas": {"title": texts(3, (" ", ", ")), "author": texts(1, (", ",)), "year": whole(1950, 2020), "price": numbers(3, 60)},
        "quotes": {"speaker": choices("Ann", "Bob", "Cy"), "words": texts(4, (" ", ' "so" ', ", ")), "minutes": numbers(1, 50)},
        "dates": {"day": days, "moment": moments, "load": numbers(0, 1_000), "hours": whole(0, 23)},
        "categories": {"color": choices("red", "green", "blue"), "shape": choices("round", "square"), "left": choices("yes", "no")},
        "mixed": {"city": choices("Rome", "Oslo", "Málaga"), "since": days, "note": texts(4, (" ", ", ")), "share": numbers(0, 1, 3)},
        "wide": {f"x{number}": numbers(-5, 5, 3) for number in range(40)},
        "gaps": {"age": gaps(whole(1, 99), 0.2), "kind": gaps(choices("a", "b", "c"), 0.1), "score": gaps(numbers(0, 9), 0.3)},
        "texts": {"author": texts(1, (" ",)), "review": texts(8, (" ", ". ", ", ", "\n", " ", " ", " "))},
        "few columns": {"t": numbers(0, 100), "value": numbers(-9, 9, 3)},
    }
    return [Clean(name, columns) for name, columns in tables.items()]


def cell(value: Value, style: Style) -> str:
    """The value as it stands in a file."""
    text = "" if value is None else f"{value:g}" if isinstance(value, float) and value.is_integer() and abs(value) < 1e6 else str(value)
    risky = any(part in text for part in (style.separator, style.quote or "\0", "\n", "\r") if part) or text != text.strip()
    if style.quote and (style.quotes_all or risky):
        return style.quote + text.replace(style.quote, style.escape + style.quote) + style.quote
    return text


def cells(clean: Clean, style: Style) -> list[list[str]]:
    """The header, if there is one, and the rows, as they stand in a file."""
    header = [[cell(name, style) for name in clean.columns]] if style.has_header else []
    return header + [[cell(value, style) for value in row] for row in clean.rows]


def join(row: Sequence[str], style: Style) -> str:
    return (style.separator + style.blank).join(row)


def plain(clean: Clean, style: Style) -> Polluted:
    """The file without pollution."""
    lines = [join(row, style) for row in cells(clean, style)]
    return Polluted("none", clean.name, clean, style, lines, names=list(clean.columns) if style.has_header else [])


def line_place(polluted: Polluted, row: int) -> int:
    """The place of a row in the lines, of which each may have several; the header is row -1."""
    return row + polluted.style.has_header


# Pollutions of one record.


def stray_quote(row: list[str], style: Style, chance: random.Random) -> str:
    """A quote within a value, in its middle or, of a quoted value, anywhere before its end."""
    place = chance.choice([place for place, text in enumerate(row) if len(text) > 1] or range(len(row)))
    is_quoted = row[place].startswith(style.quote) and len(row[place]) > 3
    middle = chance.randint(2, len(row[place]) - 1) if is_quoted else 1
    return join([*row[:place], row[place][:middle] + style.quote + row[place][middle:], *row[place + 1 :]], style)


def open_quote(row: list[str], style: Style, chance: random.Random) -> str:
    """A value that a quote opens and none closes."""
    place = chance.randrange(len(row))
    text = row[place][:-1] if row[place].startswith(style.quote) else style.quote + row[place]
    return join([*row[:place], text, *row[place + 1 :]], style)


def extra_separator(row: list[str], style: Style, chance: random.Random) -> str:
    place = chance.randint(0, len(row))
    return join([*row[:place], "", *row[place:]], style)


def missing_separator(row: list[str], style: Style, chance: random.Random) -> str:
    place = chance.randrange(len(row) - 1)
    return join([*row[:place], row[place] + row[place + 1], *row[place + 2 :]], style)


def cut_line(row: list[str], style: Style, chance: random.Random) -> str:
    """The beginning of a line, without its last separator, so that it does not pass for another row."""
    line = join(row[:-1], style)
    return line[: chance.randint(1, len(line))]


RECORD_POLLUTIONS: dict[str, Callable[[list[str], Style, random.Random], str]] = {
    "stray quote": stray_quote,
    "open quote": open_quote,
    "extra separator": extra_separator,
    "missing separator": missing_separator,
    "cut line": cut_line,
}


def pollute_record(clean: Clean, style: Style, pollution: str, row: int, seed: int) -> Polluted:
    """One record polluted; the header is row -1."""
    sound = plain(clean, style)
    place = line_place(sound, row)
    chance = random.Random(f"{clean.name} {pollution} {row} {seed}")
    line = RECORD_POLLUTIONS[pollution](cells(clean, style)[place], style, chance)
    lines = [*sound.lines[:place], line, *sound.lines[place + 1 :]]
    first = 1 + sum(other.count("\n") + 1 for other in sound.lines[:place])
    span = range(first, first + line.count("\n") + 1)
    case = replace(sound, pollution=pollution, case=f"{clean.name}, row {row}, seed {seed}", lines=lines)
    return replace(case, broken_rows=frozenset({row} - {-1}), broken_lines=frozenset(span))


# Pollutions of a file.


def total_cells(clean: Clean) -> list[str]:
    """A row of totals: sums of the numbers, and the word in the first other cell."""
    sums = [_total(values) for values in clean.columns.values()]
    label = next((place for place, text in enumerate(sums) if not text), 0)
    return ["Total" if place == label else text for place, text in enumerate(sums)]


def _total(values: Sequence[Value]) -> str:
    """The sum of numbers; empty for other values."""
    numbers = [value for value in values if isinstance(value, float)]
    return f"{sum(numbers):.4f}".rstrip("0").rstrip(".") if numbers else ""


def pollute_file(clean: Clean, style: Style, row: int) -> Iterator[Polluted]:
    """Everything but faults of one record, at a row where there is one."""
    sound = plain(clean, style)
    lines, width, sep = list(sound.lines), len(clean.columns), style.separator
    header = lines[0]
    place = 1 + row

    def case(pollution: str, changed: Sequence[str], **changes: Any) -> Polluted:
        return replace(sound, pollution=pollution, case=f"{clean.name}, row {row}", lines=changed, **changes)

    yield case("comments before", ["# made by hand", "# in March, 2021", *lines])
    yield case("one title line", ["Report of the year", *lines])
    yield case("title and blank line", ["Report of the year 2021, all regions", "", *lines])
    title = join(["Source", "ministry", *[""] * (width - 2)], style) if width > 2 else "Source: ministry"
    yield case("titles of several cells", [title, "Made in March", *lines])
    yield case("comment in the middle", [*lines[:place], "# checked until here", *lines[place:]])
    yield case("blank line in the middle", [*lines[:place], "", *lines[place:]])
    yield case("repeated header", [*lines[:place], header, *lines[place:]] if row else [header, *lines])
    yield case("header repeated thrice", [*lines[:10], header, *lines[10:40], header, *lines[40:99], header, *lines[99:]])
    yield case("two files joined, each with its mark", ["\ufeff" + header, *lines[1:place], "\ufeff" + header, *lines[place:]])
    yield case("footer of totals", [*lines, join(total_cells(clean), style)])
    yield case("footer of a note", [*lines, "Source: ministry of numbers"])
    yield case("blank line and totals", [*lines, "", join(total_cells(clean), style)])
    yield case("footer of the number of rows", [*lines, f"({ROWS} rows)"])
    units = [cell({float: "m²", str: "text"}.get(type(values[0]), "unit"), style) for values in clean.columns.values()]
    yield case("units below the header", [header, join(units, style), *lines[1:]], names=[])
    groups = [cell("group" if number % 2 == 0 else "", style) for number in range(width)]
    yield case("groups above the header", [join(groups, style), *lines], names=[])
    yield case("no header", lines[1:], names=[])
    yield case("separator at the end of every line", [line + sep for line in lines], extra_columns=1)
    yield case("separator at the end of every row", [header, *(line + sep for line in lines[1:])], extra_columns=1)
    repeated = [cell("a", style), *[cell("a" if number == 0 else name, style) for number, name in enumerate(list(clean.columns)[1:])]]
    yield case("repeated names", [join(repeated, style), *lines[1:]], names=[])
    years = [*[cell(name, style) for name in list(clean.columns)[:1]], *(cell(str(2019 + number), style) for number in range(width - 1))]
    yield case("years as names", [join(years, style), *lines[1:]], names=[])
    yield case("a byte order mark", ["\ufeff" + lines[0], *lines[1:]])
    yield case("an empty first name", [join([cell("", style), *cells(clean, style)[0][1:]], style), *lines[1:]], names=[])


def styles(clean: Clean, seed: int, most: int) -> Iterator[Style]:
    """Styles that can write the table."""
    chance = random.Random(f"{clean.name} {seed}")
    for _ in range(most):
        separator = chance.choice([",", ",", ";", "\t", "|", " ", ":", "::", "^", "~", "\x01", "||"])
        quote = chance.choice(['"', '"', "'"])
        yield Style(
            separator=separator,
            quote=quote,
            escape=chance.choice([quote, quote, "\\"]),
            quotes_all=chance.random() < 0.4,
            blank=" " if separator == "," and chance.random() < 0.3 else "",
            line_end=chance.choice(["\n", "\r\n", "\r"]),
            encoding=chance.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"]),
            has_header=chance.random() < 0.85,
            ends_last_line=chance.random() < 0.7,
        )


def write_in_form(clean: Clean, form: Form, column: str, style: Style) -> Polluted:
    """The table with a column in another form, which has the values of that form."""
    chance = random.Random(f"{clean.name} {form.name}")
    values: list[Value] = []
    if form in DATES:
        moments = (datetime(2021, 1, 1) + timedelta(minutes=chance.randint(0, 1_400_000)) for _ in range(ROWS))
        values = [moment if form.has_time else moment.replace(hour=0, minute=0) for moment in moments]
    else:
        values = [round(chance.uniform(-9_999, 99_999), form.decimals) for _ in range(ROWS)]
    written = {**clean.columns, column: [form.write(value) for value in values]}
    lines = [join(row, style) for row in cells(Clean(clean.name, written), style)]
    expected = Clean(clean.name, {**clean.columns, column: values})
    return Polluted(f"form {form.name}", f"{clean.name}, {style.separator!r}", expected, style, lines, names=list(clean.columns))


def all_cases() -> Iterator[Polluted]:
    """Every case, in an order that does not change."""
    rows = (-1, 0, 1, 2, 10, 74, 120, ROWS - 2, ROWS - 1)
    for clean in clean_tables():
        for style in (Style(), Style(quotes_all=True)):
            for pollution in RECORD_POLLUTIONS:
                for row in rows:
                    yield from (pollute_record(clean, style, pollution, row, seed) for seed in range(2))
            yield from pollute_file(clean, style, 60)
        yield from pollute_file(clean, Style(";"), 3)
        for style in styles(clean, 0, 60):
            yield replace(plain(clean, style), pollution="style", case=f"{clean.name}, {style}")
        for seed, style in enumerate(styles(clean, 1, 30)):
            pollution = list(RECORD_POLLUTIONS)[seed % len(RECORD_POLLUTIONS)]
            case = pollute_record(clean, style, pollution, 5 + 4 * seed, seed)
            yield replace(case, pollution="record and style", case=f"{pollution}, {case.case}, {style}")
        for form in (*NUMBERS, *DATES):
            for style in (Style(), Style(";")):
                yield write_in_form(clean, form, list(clean.columns)[-1], style)

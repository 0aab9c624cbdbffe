"""The header of a table: which of its first lines are comments, titles, names and rows, judged by what nearly all values of a column are,
not by single lines; and the names that columns get in schemas and features."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from pipelines.config.dataset.dataset import check_column_name
from pipelines.config.messages.words import show_count, verb_for
from pipelines.errors import SourceError
from pipelines.init.tables.dialect import MARKS, MOMENT, NUMBER, TableDialect, TextRecord

_NEARLY_ALL = 0.8
"""Share of the values that makes the kind of a column."""
_MOST_LEADING = 50
"""Records among which the first row is."""
_MOST_READ = 2_000
_MOST_CATEGORIES = 0.25
"""Different values by rows, of a column that has categories."""
_MOST_REPEATED = 0.03
"""Share of the records that may repeat the names."""
_TYPED_NAME = re.compile(r"(.+):(?:token|float|token_seq|float_seq)")
"""A name with its type, as RecBole writes it."""
MOST_CHARACTERS = 80
"""Of a name, to which drafts append what became of it."""


@dataclass(frozen=True)
class Layout:
    """The lines of a table before its rows, and how sure that is."""

    dialect: TableDialect
    names: tuple[str, ...]
    """Empty if there are none."""
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Column:
    """The values of a column that are neither empty nor marks of missing ones."""

    values: Sequence[str]

    @cached_property
    def kind(self) -> str:
        for kind, pattern in (("number", NUMBER), ("moment", MOMENT)):
            if sum(pattern.fullmatch(value) is not None for value in self.values) >= max(_NEARLY_ALL * len(self.values), 1):
                return kind
        counts = Counter(self.values)
        is_repeated = sum(count for count in counts.values() if count > 1) >= 0.98 * len(self.values)
        return "category" if is_repeated and len(counts) <= _MOST_CATEGORIES * len(self.values) else "text"

    @cached_property
    def lengths(self) -> tuple[int, int]:
        counts = Counter(self.values)
        lengths = [len(value) for value in self.values if counts[value] > 1 or len(self.values) < 20] or list(map(len, self.values))
        return min(lengths), max(lengths)

    @cached_property
    def repeated(self) -> set[str]:
        return {value for value, count in Counter(self.values).items() if count > 1}

    def differs(self, value: str) -> bool:
        """Whether a value is of another kind than those of the column."""
        if not self.values or value in MARKS:
            return False
        if self.kind == "category":
            return value not in self.repeated
        return self.kind in ("number", "moment") and not (NUMBER if self.kind == "number" else MOMENT).fullmatch(value)

    def differs_in_length(self, value: str) -> bool:
        """Whether a text is shorter or longer than all of the column."""
        return self.kind == "text" and not self.lengths[0] <= len(value) <= self.lengths[1]

    def is_outside(self, value: str) -> bool:
        """Whether a whole number is no value of the column: that has texts or fractions, or all are far smaller or larger. The first of
        numbers that count rows is a little smaller."""
        if self.kind != "number":
            return value not in self.repeated
        numbers = [float(value) for value in self.values if re.fullmatch(r"[+-]?[0-9]*\.?[0-9]+", value)]
        low, high = (min(numbers), max(numbers)) if numbers else (0, 0)
        margin = (high - low) / 4
        return any("." in other for other in self.values) or not low - margin <= float(value) <= high + margin


def find_layout(dialect: TableDialect, records: Sequence[TextRecord], path: str, skip: int | None) -> Layout:
    """The layout of a table by its first records. `skip` are lines that the user wants to be skipped, if any are told.

    Raises SourceError where names are needed, and stand in a broken line."""
    if dialect.is_aligned:
        records = [record for record in records if record.values]
    records = [record for record in records if not skip or record.line > skip]
    width = dialect.width
    comment = "" if dialect.is_aligned else _comment(records[:_MOST_READ], width)
    records = [record for record in records if not (comment and record.text.startswith(comment))]
    dialect = replace(dialect, comment=comment, skip=skip or 0)
    leading, columns = records[:_MOST_LEADING], _columns(records, width)
    first_row = next((place for place, record in enumerate(leading) if _is_row(record, columns)), None)
    if first_row is None:
        first_row = next((place for place, record in enumerate(leading) if len(record.values) == width), 0)
    titles = [record for record in leading[:first_row] if _possible_names(record, width, columns) is None]
    names = [record for record in leading[:first_row] if record not in titles]
    if names:
        return _layout_with_names(dialect, leading[:first_row], names, leading[first_row].line if first_row < len(leading) else 0, columns)
    if len(records) <= first_row + 1:
        return Layout(dialect, ())
    if not titles or dialect.is_aligned:
        return _layout_by_first_line(dialect, records[first_row], records[first_row + 1], columns)
    layout = _layout_by_first_line(replace(dialect, skip=records[first_row].line - 1), records[first_row], records[first_row + 1], columns)
    if layout.names and not layout.doubts:
        return layout
    record = next((record for record in titles if not record.values), titles[-1])  # a broken one leaves those below in doubt
    count = f"has {show_count(len(record.values), 'value')}, and most have {width}" if len(record.values) != width else "has too few names"
    fault = count if record.values else "has a quote that is stray or does not close"
    raise SourceError(  # the last line may be that of the names, broken
        f"{path}: line {record.line:,} {fault}, and no names of columns follow; mend it, or leave it out with --skip-rows {record.line}"
    )


def _columns(records: Sequence[TextRecord], width: int) -> list[_Column]:
    """The columns of the records behind the first, since that may be a header, and of many behind the first few."""
    alike = [record.values for record in records[:_MOST_READ] if len(record.values) == width]
    below = alike[4 if len(alike) > 12 else 1 :]
    different = [values for values in below if values != alike[0]]
    if len(below) - len(different) <= _MOST_REPEATED * len(below):  # of names that are repeated where files were joined
        below = different
    stripped = [[value.strip() for value in values] for values in zip(*below, strict=True)] if below else [[] for _ in range(width)]
    return [_Column([value for value in values if value and value not in MARKS]) for values in stripped]


def _comment(records: Sequence[TextRecord], width: int) -> str:
    """The sign that begins lines which are no rows, and no line that is one; empty if there is none."""
    signs = Counter(record.text[0] for record in records if not (record.text[0].isalnum() or record.text[0] in "\"' \t+-.,;|([{<$€_"))
    columns = _columns(records, width)
    for sign, _ in signs.most_common(2):
        begun = [record for record in records if record.text.startswith(sign)]
        as_wide = [record for record in begun if len(record.values) == width]
        stand_first = as_wide == [record for record in records[: len(begun)] if record in as_wide]
        if sign.isascii() and len(begun) < len(records) / 2 and 2 * len(as_wide) <= len(begun) and stand_first:
            return sign
        if sign.isascii() and len(begun) < len(records) / 10 and columns[0].kind in ("number", "moment") and not as_wide:
            return sign
    return ""


def _is_row(record: TextRecord, columns: Sequence[_Column]) -> bool:
    """Whether a record is a row: as wide, with values of the kinds that their columns have."""
    if len(record.values) != len(columns):
        return False
    values = [value.strip() for value in record.values]
    filled = [(value, column) for value, column in zip(values, columns, strict=True) if value and value not in MARKS]
    no_booleans = [(value, column) for value, column in filled if value.lower() not in ("true", "false")]
    if any(column.kind == "category" for _, column in no_booleans):  # words such as null and true may be names as well
        filled = no_booleans
    if not filled and any(values):  # nothing but marks, which are hardly all of the names
        return True
    typed = [column.differs(value) for value, column in filled if column.kind in ("number", "moment")]
    if typed:
        numbers = [(value, column) for value, column in zip(values, columns, strict=True) if re.fullmatch("[0-9]{1,6}", value)]
        steps = {int(second[0]) - int(first[0]) for first, second in pairwise(numbers)}
        counts_up = len(steps) == 1 and steps != {0}  # as years do in a header; then most are none of their columns' values
        is_header = counts_up and sum(column.is_outside(value) for value, column in numbers) > len(numbers) / 2
        return sum(typed) < len(typed) / 2 and not is_header
    if any(column.kind in ("number", "moment") and len(column.values) for column in columns):  # a row that misses all of these, or none
        return any(value in column.repeated for value, column in filled if column.kind == "category")
    differing = [column.differs(value) or column.differs_in_length(value) for value, column in filled]
    return sum(differing) <= len(differing) / 2


def _possible_names(record: TextRecord, width: int, columns: Sequence[_Column]) -> list[str] | None:
    """The names that stand in a record above the rows; None if it has too few, or too many."""
    if len(record.values) < width and columns and columns[-1].values:
        return None
    names = fit_names(record.values, width)
    filled = sum(map(bool, names))
    is_index_unnamed = names[:1] == [""] and filled == width - 1 > 0  # as pandas writes it
    is_enough = is_index_unnamed or (filled >= min(2, width) and 2 * filled >= width)
    return names if len(names) == width and is_enough else None


def fit_names(values: Sequence[str], width: int) -> list[str]:
    """Names for so many columns, where only the rows, or only the names, end in a separator."""
    names = [name.strip() for name in values]
    if len(names) == width - 1:
        return [*names, ""]
    return names[:width] if len(names) == width + 1 and not names[-1] else names


def _layout_with_names(
    dialect: TableDialect,
    leading: Sequence[TextRecord],
    rows_of_names: Sequence[TextRecord],
    first_row_line: int,
    columns: Sequence[_Column],
) -> Layout:
    """The layout of a table with names, in one or several lines above its rows."""
    width = dialect.width
    if gaps := [place for place, (record, other) in enumerate(pairwise(rows_of_names), 1) if other.line > record.line + 1]:
        rows_of_names = rows_of_names[gaps[-1] :]  # behind the last blank line, as titles are not
    all_names = [_possible_names(record, width, columns) or [] for record in rows_of_names]
    best = max(range(len(all_names)), key=lambda place: (len({name for name in all_names[place] if name}), -place))
    names, record = tuple(all_names[best]), rows_of_names[best]
    before = [other for other in leading if other.line < record.line]
    doubts = []
    if before:
        doubts.append(f"the names are in line {record.line:,}: what stands before them is skipped")
    if record is rows_of_names[-1]:
        skip = max(dialect.skip, record.line - 1 if before else 0)
        return Layout(replace(dialect, skip=skip, has_header=True), names, tuple(doubts))
    between = range(record.line + 1, first_row_line)
    lines = f"line {between[0]:,} stands" if len(between) == 1 else f"lines {between[0]:,} to {between[-1]:,} stand"
    doubts.append(f"{lines} between the names and the rows, and {verb_for(len(between))} skipped")
    return Layout(replace(dialect, skip=first_row_line - 1), names, tuple(doubts))


def _layout_by_first_line(dialect: TableDialect, record: TextRecord, following: TextRecord, columns: Sequence[_Column]) -> Layout:
    """The layout of a table whose first line may be a row: it is one if it has numbers as the others do, or values that occur again."""
    values = [value.strip() for value in record.values]
    if len(values) != len(columns):
        return Layout(dialect, ())
    first = ", ".join(values[:4])
    if any(column.kind in ("number", "moment") for column in columns):
        are_whole = len(values) >= 3 and all(re.fullmatch("[0-9]{1,6}", value) for value in values)
        if not are_whole or {int(second) - int(first) for first, second in pairwise(values)} != {1}:
            return Layout(dialect, ())
        doubt = f"line {record.line:,} ({first}) is taken for a row, though it counts up: --skip-rows {record.line} leaves it out"
        return Layout(dialect, (), (f"{doubt}, if these are names",))
    is_known = any(value in column.repeated for value, column in zip(values, columns, strict=True) if value)
    plain = [value for value in values if value]
    can_be_names = len(set(plain)) == len(plain) >= len(values) - 1 and not any(map(NUMBER.fullmatch, plain))
    if is_known or not can_be_names:
        return Layout(dialect, ())
    doubt = (
        f"line {record.line:,} ({first}) is taken for the names of the columns, which are all texts: with header: false in the options of "
        "the table it is a row"
    )
    is_certain = any(
        column.differs(value) or column.differs_in_length(value) for value, column in zip(values, columns, strict=True) if value
    )
    is_followed = following.line == record.line + 1  # as a title is not
    return Layout(replace(dialect, has_header=True), tuple(values), () if is_certain and is_followed else (doubt,))


def column_names(header: Sequence[str | None], width: int) -> list[str]:
    """The names of a header as columns of a schema, all different in more than case; without a header, c1, c2 and so on."""
    names, used_names = list[str](), set[str]()
    for place in range(width):
        text = (header[place] or "row") if place < len(header) else f"c{place + 1}"
        names.append(_number_name(_plain_name(text) or f"c{place + 1}", used_names))
    return names


def tensor_column_names(names: Sequence[str]) -> list[str]:
    """The names of columns, all different; those that no tensor column may have in plain characters."""
    used_names = {name.lower() for name in names if _fits_tensor(name)}
    return [name if _fits_tensor(name) else _number_name(_plain_name(name) or "column", used_names) for name in names]


def section_name(text: str) -> str:
    """The text in the characters that the name of a table or of an expectation may have in a config."""
    return re.sub(r"[^\w -]", "_", text)


def _fits_tensor(name: str) -> bool:
    try:
        check_column_name(name)
    except ValueError:
        return False
    return True


def _number_name(base: str, used_names: set[str]) -> str:
    """The base, or with a number what none of the used names is, which are in lower case; it is used from now on."""
    name, number = base, 2
    while name.lower() in used_names:
        name, number = f"{base}_{number}", number + 1
    used_names.add(name.lower())
    return name


def _plain_name(text: str) -> str:
    """A name without characters that SQL or a tensor column refuses."""
    typed = _TYPED_NAME.fullmatch(text.strip())
    return re.sub(r"[^\w-]+", "_", typed[1] if typed else text).strip("_")[:MOST_CHARACTERS]

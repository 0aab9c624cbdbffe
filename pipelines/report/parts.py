"""Values that templates show in a form of their own: `show` in `templates/parts.html` has the markup of each."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


class Code(str):
    """A digest or an expression, in letters of equal width."""


@dataclass(frozen=True)
class Best:
    """The best value of several, in bold."""

    value: object


@dataclass(frozen=True)
class Share:
    """A share from 0 to 1, as a bar."""

    share: float


@dataclass(frozen=True)
class Note:
    """A marked paragraph."""

    text: str
    kind: Literal["", "warning", "good"] = ""


@dataclass(frozen=True)
class Picture:
    """A picture inside the page."""

    content: bytes
    alternative: str
    """Text that says what it shows."""
    kind: Literal["png", "svg+xml"] = "png"
    width: int = 0
    """Pixels; 0 for as wide as there is room."""

    @property
    def source(self) -> str:
        return f"data:image/{self.kind};base64,{b64encode(self.content).decode()}"


@dataclass(frozen=True)
class PageTable:
    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture or a chart, or a note in its place."""

    content: object
    caption: str = ""
    letter: str = ""
    """The letter of the run, on a page of several."""


Facts = list[tuple[str, object]]
"""Names with their values."""


def number_columns(rows: Sequence[Sequence[object]]) -> set[int]:
    """Columns with numbers alone, and with reasons why there is none."""
    width = max(map(len, rows), default=0)
    return {column for column in range(width) if _are_numbers([row[column] for row in rows if column < len(row)])}


def _are_numbers(values: Sequence[object]) -> bool:
    present = [value for value in values if value is not None and not (isinstance(value, str) and value.startswith("undefined: "))]
    return bool(present) and all(map(_is_number, present))


def _is_number(value: object) -> bool:
    if isinstance(value, Best):
        return _is_number(value.value)
    return isinstance(value, int | float) and not isinstance(value, bool)

"""Values in the sentences in which encoders describe themselves."""

from collections.abc import Collection
from typing import Any

_MOST_VALUES, _MOST_CHARACTERS = 6, 40


def show_briefly(value: Any) -> str:
    """A number with four digits, a long list by its size, and the beginning of any other value."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    if isinstance(value, list | dict):
        return f"of {len(value):,} entries" if len(str(value)) > _MOST_CHARACTERS else str(value)
    return str(value)[:_MOST_CHARACTERS]


def list_first(values: Collection[Any]) -> str:
    """The first values in a line, with an ellipsis for all others. Line breaks and other characters that do not print are escaped."""
    first = [show_briefly(value)[:20] for value in list(values)[:_MOST_VALUES]]
    printable = [text if text.isprintable() else repr(text)[1:-1] for text in first]
    return ", ".join(printable) + (", …" if len(values) > _MOST_VALUES else "")

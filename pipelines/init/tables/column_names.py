"""Names of columns, for schemas and features."""

import re
from collections.abc import Sequence

from pipelines.config.dataset.dataset import check_column_name

_TYPED_NAME = re.compile(r"(.+):(?:token|float|token_seq|float_seq)")
"""A name with its type, as RecBole writes it."""
MOST_CHARACTERS = 80
"""Of a name, to which drafts append what became of it."""


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

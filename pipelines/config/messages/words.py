"""Counts in words, few of many names, and the known name that is closest to an unknown one."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence

MOST_SHOWN = 8
_MOST_SHAPES = 3


def name_list(names: Collection[str], name: str = "") -> str:
    """The known names in a line of a message: all if they are few, else those nearest to `name`, or the first, and their number."""
    if len(names) <= MOST_SHOWN:
        return ", ".join(names)
    lower = {lower_name.lower(): lower_name for lower_name in names}
    near = (
        [lower[lower_name] for lower_name in difflib.get_close_matches(name.lower(), lower, n=MOST_SHOWN // 2, cutoff=0.4)] if name else []
    )
    chosen = near or list(names)[: MOST_SHOWN // 2]
    return f"{', '.join(chosen)} and {len(names) - len(chosen):,} more"


def show_count(count: int | str, noun: str) -> str:
    """A number of things whose plural ends in s: `1 worker`, `1,200 rows`."""
    number = f"{count:,}" if isinstance(count, int) else count
    return f"{number} {noun}" if str(count) == "1" else f"{number} {noun}s"


def verb_for(count: int, singular: str = "is", plural: str = "are") -> str:
    """The form of a verb behind a number of things: `1 row is`, `1,200 rows are`."""
    return singular if count == 1 else plural


def list_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    """The first names of tensors with their shapes, and the number of all others."""
    first = [f"{name} ({', '.join(map(str, shape))})" for name, shape in list(shapes.items())[:_MOST_SHAPES]]
    return ", ".join(first) + (f" and {len(shapes) - len(first):,} more" if len(shapes) > len(first) else "")


def suggestion(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """`did you mean x?` with the closest known name, ignoring case; `otherwise` if none is close."""
    lower = {lower_name.lower(): lower_name for lower_name in names}
    return next((f"did you mean {lower[lower_name]}?" for lower_name in difflib.get_close_matches(name.lower(), lower, n=1)), otherwise)

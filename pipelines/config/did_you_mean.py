"""Suggests the known name that is closest to an unknown one, and shows few of many names."""

import difflib
from collections.abc import Collection, Iterable

MOST_SHOWN = 8


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean x?` with the closest known name, ignoring case; `otherwise` if none is close."""
    lower = {one.lower(): one for one in known}
    return next((f"did you mean {lower[one]}?" for one in difflib.get_close_matches(name.lower(), lower, n=1)), otherwise)


def some_of(known: Collection[str], name: str = "") -> str:
    """The known names in a line of a message: all if they are few, else those nearest to `name`, or the first, and their number."""
    if len(known) <= MOST_SHOWN:
        return ", ".join(known)
    lower = {one.lower(): one for one in known}
    near = [lower[one] for one in difflib.get_close_matches(name.lower(), lower, n=MOST_SHOWN // 2, cutoff=0.4)] if name else []
    shown = near or list(known)[: MOST_SHOWN // 2]
    return f"{', '.join(shown)} and {len(known) - len(shown):,} more"

"""Suggests the known name that is closest to an unknown one."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`did you mean x?` with the closest known name, ignoring case; `otherwise` if none is close."""
    lower = {one.lower(): one for one in known}
    return next((f"did you mean {lower[one]}?" for one in difflib.get_close_matches(name.lower(), lower, n=1)), otherwise)

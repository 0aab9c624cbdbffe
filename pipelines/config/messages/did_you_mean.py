"""Suggests the known name that is closest to an unknown one."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """`did you mean x?` with the closest known name, ignoring case; `otherwise` if none is close."""
    lower = {lower_name.lower(): lower_name for lower_name in names}
    return next((f"did you mean {lower[lower_name]}?" for lower_name in difflib.get_close_matches(name.lower(), lower, n=1)), otherwise)

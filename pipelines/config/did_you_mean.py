"""The known name that is most like an unknown one."""

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """`x is near`, where x is the known name that is most alike, upper and lower case being alike; `otherwise` if none is."""
    lower = {one.lower(): one for one in known}
    return next((f"{lower[one]} is near" for one in difflib.get_close_matches(name.lower(), lower, n=1)), otherwise)

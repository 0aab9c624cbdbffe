"""Reads times as people write them."""

import re

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def duration_seconds(text: str) -> float | None:
    """The seconds of `3600`, `90m`, `12h`, `1.5h` or `7d`; None for a text that is no time."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    return float(match[1]) * _SECONDS[match[2]] if match else None

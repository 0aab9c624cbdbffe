"""How servers are asked whether they are there."""

import json
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen


def asked(address: str, **headers: str) -> dict[str, Any]:
    """The JSON that a server answers; nothing if it does not."""
    try:
        with urlopen(Request(address, headers=headers), timeout=5) as reply:
            return dict(json.load(reply))
    except (URLError, OSError, TypeError, ValueError, RecursionError):
        return {}

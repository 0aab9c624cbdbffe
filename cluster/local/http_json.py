"""Gets JSON from servers that may not be there."""

import json
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen


def get_json(address: str, **headers: str) -> dict[str, Any]:
    """The JSON object that a server returns; empty if it does not answer with one."""
    try:
        with urlopen(Request(address, headers=headers), timeout=5) as reply:
            return dict(json.load(reply))
    except (URLError, OSError, TypeError, ValueError, RecursionError):
        return {}

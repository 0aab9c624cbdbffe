"""Finds secrets, by name or inside a URI. A config must not contain any, because it is logged, shown and stored with the dataset."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_WORDS = (
    r"pass(?:word|wd|phrase)|pwd|secret(?!ar)|token(?!s|iz)|credential|bearer|authorization"
    r"|(?:api|access|account|private|signing)[_.-]?key"
)
_NAME = re.compile(_WORDS, re.IGNORECASE)
_LOGIN = re.compile(
    rf"://[^/@\s:]*:(?!\d*(?:/|$))\S*@|\bhttps?://[^/@\s]+@|[?&;#][^=&;#\s]*(?:{_WORDS}|\bsig(?:nature)?\b)[^=&;#\s]*=", re.IGNORECASE
)
"""A user and password before the host; the password may contain characters that an address may not. Over HTTP a user alone may be a
token; in the addresses of other stores it is a user or a container."""
ELSEWHERE = (
    "which everyone who sees the run could read; set it in the environment, as MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN or "
    "AWS_SECRET_ACCESS_KEY, or in Spark's configuration"
)


def is_secret(name: str) -> bool:
    """Whether a value of this name is a secret."""
    return _NAME.search(name) is not None


def has_login(text: str) -> bool:
    """Whether a URI in the text contains credentials."""
    return _LOGIN.search(text) is not None


def find_secrets(value: Any, place: str = "") -> Iterator[str]:
    """Dotted keys of the texts that are or contain a secret."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner_value in inner:
        path = f"{place}.{key}" if place else str(key)
        if isinstance(inner_value, str) and inner_value and (is_secret(str(key)) or has_login(inner_value)):
            yield path
        yield from find_secrets(inner_value, path)

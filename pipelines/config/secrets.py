"""What must not stand in a config, which is logged, shown and kept with the dataset: secrets, by name or inside a URI."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_WORDS = (
    r"pass(?:word|wd|phrase)|pwd|secret(?!ar)|token(?!s|iz)|credential|bearer|authorization"
    r"|(?:api|access|account|private|signing)[_.-]?key"
)
_NAME = re.compile(_WORDS, re.IGNORECASE)
# A user and password before the host, of which the latter may hold what an address may not; over HTTP the user alone is a token.
# Other stores have a user or a container there.
_LOGIN = re.compile(
    rf"://[^/@\s:]*:(?!\d*(?:/|$))\S*@|\bhttps?://[^/@\s]+@|[?&;#][^=&;#\s]*(?:{_WORDS}|\bsig(?:nature)?\b)[^=&;#\s]*=", re.IGNORECASE
)
ELSEWHERE = (
    "which would be shown wherever a run is; give it in the environment: MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_TOKEN, "
    "AWS_SECRET_ACCESS_KEY, or Spark's own configuration"
)


def is_secret(name: str) -> bool:
    """Whether what has this name should not be shown."""
    return _NAME.search(name) is not None


def holds_login(text: str) -> bool:
    """Whether a URI in the text says who logs in, with what."""
    return _LOGIN.search(text) is not None


def secrets_in(value: Any, place: str = "") -> Iterator[str]:
    """Dotted keys of the texts that are secret, or hold one."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, below in inner:
        there = f"{place}.{key}" if place else str(key)
        if isinstance(below, str) and below and (is_secret(str(key)) or holds_login(below)):
            yield there
        yield from secrets_in(below, there)

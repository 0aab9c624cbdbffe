"""JSON whose last entry is the SHA-256 of all bytes before it, so that every altered byte is detected."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

SEAL = "checksum"
"""Name of the last entry."""


def checksum(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def seal(values: Mapping[str, Any]) -> bytes:
    """`values`, which are not empty, as sealed JSON."""
    return _append_seal(json.dumps(values, indent=1).encode().removesuffix(b"\n}"))


def unseal(text: bytes) -> tuple[dict[str, Any], bool]:
    """The values without the seal, and whether there is one.

    Raises ValueError if the text is no JSON object, or if its seal is not that of its bytes.
    """
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(values, dict):
        raise ValueError(f"it is {type(values).__name__}, not an object")
    if SEAL not in values:
        return values, False
    if text != _append_seal(text[: -len(_append_seal(b""))]):
        raise ValueError(f"its {SEAL} is not that of its bytes")
    del values[SEAL]
    return values, True


def unseal_or_none(text: bytes) -> dict[str, Any] | None:
    """The values without the seal; None if the text is not as `seal` wrote it."""
    try:
        values, has_seal = unseal(text)
    except ValueError:
        return None
    return values if has_seal else None


def _append_seal(body: bytes) -> bytes:
    return body + f',\n "{SEAL}": "{checksum(body)}"\n}}\n'.encode()

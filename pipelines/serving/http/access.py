"""The token of an endpoint."""

import hmac
import os
from base64 import b64decode
from hashlib import sha256
from pathlib import Path

from pipelines.config.serving import Endpoint
from pipelines.errors import ConfigError

VARIABLE = "LOCKSTEP_TOKEN"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MIN_LENGTH = 16


def token_digest(settings: Endpoint) -> bytes | None:
    """SHA-256 of the token, so that no description of the replicas contains the token itself; None if no token is required.

    Raises ConfigError if the token is missing, short or unreadable, or if there is none although other machines can reach the endpoint.
    """
    if settings.token_file:
        try:
            token = Path(settings.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"endpoint.token_file is {settings.token_file}, which cannot be read: {error}; name a file with the token"
            ) from error
    else:
        token = os.environ.get(VARIABLE, "").strip()
    if not token and not settings.token_file:
        if settings.host in _LOOPBACK:
            return None
        raise ConfigError(
            f"endpoint.host is {settings.host}, which other machines can reach, without a token; set endpoint.token_file or {VARIABLE}"
        )
    if len(token) < _MIN_LENGTH:
        raise ConfigError(f"the endpoint's token has {len(token)} characters; it must have at least {_MIN_LENGTH}: openssl rand -hex 32")
    return sha256(token.encode()).digest()


def is_authorized(authorization: str, digest: bytes | None, reads_pages: bool = False) -> bool:
    """Whether an `Authorization` header carries the token, compared in constant time. With `reads_pages` it may be the password of any
    user, as browsers send it."""
    if digest is None:
        return True
    scheme, _, token = authorization.partition(" ")
    if reads_pages and scheme.lower() == "basic":
        scheme, token = "bearer", _password(token)
    request_digest = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
    return hmac.compare_digest(request_digest, digest) and scheme.lower() == "bearer"


def _password(credentials: str) -> str:
    """The password in the credentials of HTTP's scheme `Basic` (RFC 7617); empty if there is none."""
    try:
        return b64decode(credentials.strip(), validate=True).decode().partition(":")[2]
    except ValueError:
        return ""

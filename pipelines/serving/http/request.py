"""The token of a request, which is compared with that of the endpoint, and its rows, in one of MLflow's forms, or a reason to refuse it.

MLflow takes rows as JSON in several forms: records, a split data frame, and TensorFlow's `instances` and `inputs`. They mean the same as
to `mlflow models serve`: `instances` and `inputs` are rows, or columns, or the values of a single column.
"""

import asyncio
import hmac
import json
import os
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.config.serving import Endpoint
from pipelines.data.features.raw import is_list
from pipelines.errors import ConfigError

TOKEN_ENV = "LOCKSTEP_TOKEN"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MIN_LENGTH = 16
ROWS, SPLIT, INSTANCES, INPUTS = FORMS = ("dataframe_records", "dataframe_split", "instances", "inputs")
SHAPE = f'send {{"{ROWS}": [{{"column": value, …}}, …]}}'
JsonRow = dict[str, Any]


def token_digest(settings: Endpoint) -> bytes | None:
    """SHA-256 of the token, so that no description of the replicas contains the token itself; None if no token is required. Raises
    ConfigError if the token is missing, short or unreadable, or if there is none although other machines can reach the endpoint."""
    if settings.token_file:
        try:
            token = Path(settings.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"endpoint.token_file is {settings.token_file}, which cannot be read: {error}; name a file with the token"
            ) from error
    else:
        token = os.environ.get(TOKEN_ENV, "").strip()
    if not token and not settings.token_file:
        if settings.host in _LOOPBACK:
            return None
        raise ConfigError(
            f"endpoint.host is {settings.host}, which other machines can reach, without a token; set endpoint.token_file or {TOKEN_ENV}"
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
    if reads_pages and scheme.lower() == "basic":  # user:password in base64 (RFC 7617)
        scheme = "bearer"
        try:
            token = b64decode(token.strip(), validate=True).decode().partition(":")[2]
        except ValueError:
            token = ""
    request_digest = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
    return hmac.compare_digest(request_digest, digest) and scheme.lower() == "bearer"


class RequestError(Exception):
    """`status` is that of HTTP."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _rows_from_form(content: Any, inputs: pa.Schema) -> list[JsonRow]:
    """The rows of a request for a model with these inputs. Raises RequestError if it has not exactly one form, or another shape."""
    forms = [form for form in FORMS if isinstance(content, dict) and form in content]
    if len(forms) != 1:
        count = f"{len(forms)} forms, {' and '.join(forms)}," if forms else f"none of {', '.join(FORMS)}"
        raise RequestError(422, f"the request has {count} where one is wanted; {SHAPE}")
    (form,) = forms
    value = content[form]
    if form == SPLIT:
        return _split_rows(value)
    if form != ROWS and isinstance(value, dict):
        return _column_rows(value, inputs, form)
    if not isinstance(value, list):
        raise RequestError(422, f"the request has no list {form}; {SHAPE}")
    if form != ROWS and len(inputs) == 1 and not any(isinstance(row, dict) for row in value):
        return [{inputs.names[0]: item} for item in value]
    for number, row in enumerate(value):
        if not isinstance(row, dict):
            raise RequestError(422, f"row {number} is no object of columns; {SHAPE}")
    return value


def _split_rows(value: Any) -> list[JsonRow]:
    """Rows of a data frame as pandas splits it; a model does not need its `index`."""
    columns, data = (value.get("columns"), value.get("data")) if isinstance(value, dict) else (None, None)
    if not isinstance(columns, list) or not isinstance(data, list) or value.keys() - {"columns", "data", "index"}:
        shape = f'send {{"{SPLIT}": {{"columns": ["column", …], "data": [[value, …], …]}}}}'
        raise RequestError(422, f"{SPLIT} is no object of two lists; {shape}")
    for number, row in enumerate(data):
        if not isinstance(row, list) or len(row) != len(columns):
            raise RequestError(422, f"row {number} of {SPLIT} is no list of {len(columns)} values, one for each of its columns")
    return [dict(zip(map(str, columns), row, strict=True)) for row in data]


def _column_rows(columns: Mapping[str, Any], inputs: pa.Schema, form: str) -> list[JsonRow]:
    """Rows from lists of values by column, or one row from a value for each column."""
    kinds = {field.name: field.type for field in inputs}
    has_many = {}
    for name, value in columns.items():
        depth, first = 0, value  # lists around the first value; an empty list counts as one
        while isinstance(first, list):
            depth, first = depth + 1, next((item for item in first if item is not None), None)
        has_many[name] = depth > (_list_levels(kinds[name]) if name in kinds else 0)
    if not any(has_many.values()):
        return [dict(columns)]
    counts = {name: len(value) if has_many[name] else -1 for name, value in columns.items()}
    if len(set(counts.values())) > 1:
        name = next(iter(counts))
        other = next(other for other in counts if counts[other] != counts[name])
        raise RequestError(422, f"columns {name} and {other} of {form} have not equally many values; give a list of values for each column")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _list_levels(kind: pa.DataType) -> int:
    return 1 + _list_levels(kind.value_type) if is_list(kind) else 0


async def read_body(declared: str, chunks: AsyncIterator[bytes], settings: Endpoint) -> bytes:
    """The body of a request, given its Content-Length. Raises RequestError if it is too large, and keeps nothing beyond the limit, or if
    it takes longer than `request_seconds`: a client that sends a byte now and then would hold its place for ever."""
    limit = settings.bytes_per_request
    too_large = f"the request has more than {limit:,} bytes, endpoint.bytes_per_request; send the rows in several requests"
    if declared.isdecimal() and int(declared) > limit:
        raise RequestError(413, too_large)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.request_seconds):
            async for chunk in chunks:
                body += chunk
                if len(body) > limit:
                    raise RequestError(413, too_large)
    except TimeoutError:
        raise RequestError(
            408, f"the request took longer than {settings.request_seconds:g} s to arrive, endpoint.request_seconds; send it in smaller ones"
        ) from None
    return bytes(body)


def parse_rows(body: bytes, settings: Endpoint, inputs: pa.Schema) -> list[JsonRow]:
    """The rows of a request, for a model with these inputs. Raises RequestError if it is no JSON, has another shape or too many rows."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(400, f"the request is not JSON: {reason}; {SHAPE}") from error
    rows = _rows_from_form(content, inputs)
    if len(rows) > (limit := settings.rows_per_request):
        raise RequestError(
            413, f"the request has {len(rows):,} rows, more than {limit:,}, endpoint.rows_per_request; send several requests"
        )
    return rows

"""Reads the rows of a request, or says why it is refused. Requests have the format of `mlflow models serve`."""

import json
from collections.abc import AsyncIterator
from typing import Any

from pipelines.config.endpoint import Endpoint

ROWS = "dataframe_records"
SHAPE = f'send {{"{ROWS}": [{{"column": value, …}}, …]}}'


class RequestError(Exception):
    """A request that is not answered with predictions. `status` is that of HTTP."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def read_body(declared: str, chunks: AsyncIterator[bytes], settings: Endpoint) -> bytes:
    """The body of a request, given its Content-Length. Raises RequestError if it is too large, and keeps nothing beyond the limit."""
    limit = settings.bytes_per_request
    too_large = f"the request has more than {limit:,} bytes, endpoint.bytes_per_request; send the rows in several requests"
    if declared.isdecimal() and int(declared) > limit:
        raise RequestError(413, too_large)
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise RequestError(413, too_large)
    return bytes(body)


def rows_of(body: bytes, settings: Endpoint) -> list[dict[str, Any]]:
    """The rows of a request's body. Raises RequestError if it is no JSON, has another shape or too many rows."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(400, f"the request is not JSON: {said}; {SHAPE}") from error
    rows = content.get(ROWS) if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise RequestError(422, f"the request has no list {ROWS}; {SHAPE}")
    if len(rows) > settings.rows_per_request:
        most = settings.rows_per_request
        raise RequestError(413, f"the request has {len(rows):,} rows, more than {most:,}, endpoint.rows_per_request; send several requests")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RequestError(422, f"row {number} is no object of columns; {SHAPE}")
    return rows

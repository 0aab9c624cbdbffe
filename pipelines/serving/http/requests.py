"""Reads the rows of a request, or refuses it with a reason."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa

from pipelines.config.endpoint import Endpoint
from pipelines.serving.http.forms import SHAPE, rows_from_form
from pipelines.serving.http.refusals import RequestError


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


def parse_rows(body: bytes, settings: Endpoint, inputs: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a request's body, for a model with these inputs. Raises RequestError if it is no JSON, has another shape or too many
    rows."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(400, f"the request is not JSON: {reason}; {SHAPE}") from error
    rows = rows_from_form(content, inputs)
    if len(rows) > (limit := settings.rows_per_request):
        raise RequestError(
            413,
            f"the request has {len(rows):,} rows, more than {limit:,}, endpoint.rows_per_request; send several requests",
        )
    return rows

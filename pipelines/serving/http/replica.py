"""A process that answers requests.

Its routes are a `match`, since FastAPI's cost too much: the same handler as a route with a dependency for the token answered 0.86 of the
requests per second (median of 14 pairs of 6 s by turns, 1,377 and 1,624 requests/s; FastAPI 0.165, 2026-11-26, two cores).
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Generic, TypeVar

import ray
import torch
from prometheus_client import CONTENT_TYPE_LATEST
from ray import serve
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from pipelines.config.serving import Endpoint
from pipelines.errors import LockstepError
from pipelines.runtime.compat.ray_serve import is_on_loopback, keep_servers_on_loopback
from pipelines.serving.http.counters import ACTOR, NAMESPACE, ReplicaCounts
from pipelines.serving.http.openapi import endpoint_page, openapi
from pipelines.serving.http.request import JsonRow, RequestError, is_authorized, parse_rows, read_body
from pipelines.serving.http.served_model import load_served_model
from pipelines.serving.model import REFUSED
from pipelines.tracking.models import resolve_version

log = logging.getLogger(__name__)

Row = TypeVar("Row")
Answer = TypeVar("Answer")
FLUSH_SECONDS = 1.0
_OPEN = ("/health",)
_PAGES = ("/", "/docs", "/openapi.json")
"""For people, whose browsers send the token as a password."""


class RequestBatches(Generic[Row, Answer]):
    """Belongs to one event loop."""

    def __init__(self, compute: Callable[[Sequence[list[Row]]], Awaitable[Sequence[Answer]]], max_rows: int) -> None:
        """`compute` gets the rows of requests, and returns an answer to each. Only a single request may have more than `max_rows`."""
        self._compute, self._max_rows = compute, max_rows
        self._waiting: deque[tuple[list[Row], asyncio.Future[Answer]]] = deque()
        self._computing: asyncio.Task[None] | None = None

    async def answer(self, rows: list[Row]) -> Answer:
        """The answer to a request. Raises what `compute` raises for its batch."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, future))
        if self._computing is None:
            self._computing = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while batch := self._next_batch():
            try:
                answers = await self._compute([rows for rows, _ in batch])
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():  # its client may be gone
                        future.set_result(answer)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
        self._computing = None

    def _next_batch(self) -> list[tuple[list[Row], asyncio.Future[Answer]]]:
        """The requests that have waited longest, as many as fit; without those whose clients are gone."""
        batch: list[tuple[list[Row], asyncio.Future[Answer]]] = []
        room = self._max_rows
        while self._waiting:
            rows, future = self._waiting[0]
            if batch and len(rows) > room:
                break
            self._waiting.popleft()
            if not future.done():
                batch.append((rows, future))
                room -= len(rows)
        return batch


class ModelReplica:
    """Answers HTTP requests with the predictions of one model. `start` makes it a deployment of Ray Serve."""

    def __init__(self, settings: Endpoint, tracking_uri: str, token_digest: bytes | None) -> None:
        torch.set_num_threads(1)
        if is_on_loopback():
            keep_servers_on_loopback()
        logging.getLogger("pipelines").setLevel(logging.INFO)
        self._settings, self._token_digest = settings, token_digest
        self._served = load_served_model(tracking_uri, settings.model, resolve_version(tracking_uri, settings.model))
        self._thread = ThreadPoolExecutor(1, "predict")
        self._counts = ReplicaCounts()
        self._name = serve.get_replica_context().replica_id.unique_id
        self._stop = Event()
        self._counters = ray.get_actor(ACTOR, namespace=NAMESPACE)
        self._flushing = asyncio.get_running_loop().create_task(self._flush())
        self._batches = RequestBatches(self._predict, settings.max_batch_rows)
        if "@" in settings.model:
            Thread(target=self._follow, args=(tracking_uri,), name="follow", daemon=True).start()

    async def __call__(self, request: Request) -> Response:
        start = time.perf_counter()
        try:
            answer = await self._answer(request)
        except RequestError as error:
            # A browser then asks its user for the token.
            headers = {"WWW-Authenticate": "Basic" if _is_page(request) else "Bearer"} if error.status == 401 else None
            answer = JSONResponse({"error": str(error)}, error.status, headers=headers)
        self._counts.requests.append((answer.status_code, time.perf_counter() - start))
        return answer

    async def _answer(self, request: Request) -> Response:
        served, path = self._served, request.url.path
        authorization = request.headers.get("authorization", "")
        if path not in _OPEN and not is_authorized(authorization, self._token_digest, _is_page(request)):
            raise RequestError(401, "the token is missing or wrong; send Authorization: Bearer TOKEN")
        match request.method, path:
            case "POST", "/invocations":
                return await self._invocation(request)
            case "GET", "/health":
                return JSONResponse({"status": "ok", "version": served.version, "model": served.digest})
            case "GET", "/metrics":
                return Response(await self._counters.text.remote(), media_type=CONTENT_TYPE_LATEST)
            case "GET", "/openapi.json":
                return JSONResponse(openapi(served, self._settings, self._token_digest is not None))
            case "GET", "/" | "/docs":
                return HTMLResponse(endpoint_page(openapi(served, self._settings, self._token_digest is not None)))
            case _:
                raise RequestError(404, f"there is no {request.method} {path}; POST rows to /invocations, or GET /docs")

    async def _invocation(self, request: Request) -> Response:
        body = await read_body(request.headers.get("content-length", ""), request.stream(), self._settings)
        rows = parse_rows(body, self._settings, self._served.predictor.inputs)
        predicted, version = await self._batches.answer(rows)
        refused = sum(row[REFUSED] is not None for row in predicted)
        self._counts.rows_predicted += len(predicted) - refused
        self._counts.rows_refused += refused
        content = json.dumps({"predictions": predicted}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return Response(content, media_type="application/json", headers={"Model-Version": version})

    async def _predict(self, requests: Sequence[list[JsonRow]]) -> list[tuple[list[JsonRow], str]]:
        """A batch has one model from its first to its last row."""
        served = self._served
        self._counts.batches += 1
        answers = await asyncio.get_running_loop().run_in_executor(self._thread, served.answers, requests)
        return [(answer, served.version) for answer in answers]

    def _follow(self, tracking_uri: str) -> None:
        """Serve the version that the alias points to when it moves, until the replica ends. A model that cannot be loaded, an alias that
        was removed and a server that is away leave the present model in place, and the next round tries again."""
        while not self._stop.wait(self._settings.follow_seconds):
            present = self._served.version
            try:
                version = resolve_version(tracking_uri, self._settings.model)
                if version != present:
                    self._served = load_served_model(tracking_uri, self._settings.model, version)
                    self._counts.swaps += 1
            except Exception as error:  # a model of other code may raise anything; the present one is served on
                self._counts.follow_failures += 1
                reason = error if isinstance(error, LockstepError) else repr(error)
                log.warning("still serving version %s, since the alias cannot be followed: %s", present, reason)

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            counts, self._counts = self._counts, ReplicaCounts()
            self._counters.add.remote(self._name, self._served.version, counts)

    def __del__(self) -> None:
        self._stop.set()


def _is_page(request: Request) -> bool:
    return request.method == "GET" and request.url.path in _PAGES

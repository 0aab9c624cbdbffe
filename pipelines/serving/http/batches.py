"""Gathers the rows of several requests: while a batch is computed, the requests of the next one wait.

Ray Serve's own batches are formed before they wait for the one that is computed, and so had hardly more than one request each.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Row = TypeVar("Row")
Answer = TypeVar("Answer")


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

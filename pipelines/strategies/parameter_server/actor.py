"""A parameter server as a Ray actor. Ray places it, restarts it when it dies, and sends it again what it had not answered.

A restarted server continues with the contents of its backup, which carries out every command before the sender hears of it.
The backup is the same actor without a backup of its own; if it dies, the next command gives it the server's contents again.
"""

import time
from collections.abc import Callable
from copy import deepcopy
from threading import Condition
from typing import Any, TypeVar
from uuid import uuid4

import ray
import torch

from pipelines.errors import TrainingError
from pipelines.strategies.parameter_server.messages import Contents, Pulled, Ready, StepSums, Turn
from pipelines.strategies.parameter_server.server import Server
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.strategies.parameter_server.watermarks import Leases, Watermarks

Answer = TypeVar("Answer")
PATIENCE_SECONDS = 2.0
"""Seconds that a call waits for its answer before the caller has to ask again: callers may have died."""
LOST = "a parameter server has lost its part of the parameters"


class ServerActor:
    """Serves calls in several threads, one at a time under a lock; a call that has to wait releases it."""

    def __init__(self, backup: str) -> None:
        """`backup` is the name of its actor; empty for none. A restarted server needs it, so it is an argument of the constructor."""
        self._backup: Any = ray.get_actor(backup) if backup else None
        self._queue = 0
        self._server: Server | None = None
        self._leases = Leases(None)
        self._changed = Condition()
        self._name, self._follows = uuid4().hex, ""
        """Of this process; and, in a backup, of the server's process whose commands it carries out."""
        contents: Any = ray.get(self._backup.contents.remote(self._name)) if self._backup else None
        if contents is not None:
            self._begin(contents)

    def load(self, contents: Contents, leader: str = "") -> None:
        """Begin with these contents, whatever was here; a backup then follows the process `leader`."""
        with self._changed:
            self._follows = leader
            self._begin(contents)
            self._load_backup()
            self._changed.notify_all()

    def run(self) -> str:
        """The timeline of the contents; empty without contents."""
        with self._changed:
            return self._server.run if self._server else ""

    def contents(self, leader: str = "") -> Contents | None:
        """A copy of everything; None without contents. A backup then follows the process `leader`, and no earlier one, whose last
        commands may still be on their way."""
        with self._changed:
            self._follows = leader or self._follows
            return None if self._server is None else deepcopy(self._server.contents())

    def command(self, run: str, name: str, *arguments: Any) -> int:
        """Carry out a command of the server, and of its backup. Returns the number of commands that wait."""
        self._queue += 1
        with self._changed:
            self._queue -= 1
            server = self._current_server(run)
            before = server.sequence
            getattr(server, name)(*arguments)
            if server.sequence > before:
                self._send_to_backup(server, name, arguments)
            self._changed.notify_all()
            return self._queue

    def follow(self, leader: str, sequence: int, name: str, arguments: tuple[Any, ...]) -> bool:
        """As a backup, carry out command number `sequence` of the process `leader`. Returns false if earlier ones are missing, or
        if this backup follows another process."""
        with self._changed:
            server = self._server
            if server is None or self._follows != leader or server.sequence != sequence - 1:
                return False
            getattr(server, name)(*arguments)
            return True

    def take(self, run: str, worker: int, end: int) -> Turn | None:
        """The worker's next microbatch of a step before `end`. Only the first server is asked."""

        def ask(server: Server) -> Turn | None:
            marks, limits = server.watermarks, server.limits(end)
            if all(step >= limit for step, limit in zip(marks.next_steps, limits, strict=True)):
                return Turn(is_over=True)
            shard_and_step = self._leases.take(worker, marks, limits, time.monotonic())
            return shard_and_step and Turn(*shard_and_step)

        return self._wait_for(run, ask)

    def pull(self, run: str, step: int, have: int | None) -> Pulled | None:
        return self._wait_for(run, lambda server: server.pull(step, have))

    def current(self, run: str, have: int | None) -> Pulled:
        with self._changed:
            return self._current_server(run).current(have)

    def ready(self, run: str, step: int) -> Ready | None:
        return self._wait_for(run, lambda server: server.ready(step))

    def may_begin(self, run: str, step: int) -> bool | None:
        return self._wait_for(run, lambda server: server.may_begin(step))

    def steps_after(self, run: str, number: int) -> list[StepSums]:
        with self._changed:
            return self._current_server(run).steps_after(number)

    def watermarks(self, run: str) -> tuple[Watermarks, int]:
        """A copy of the watermarks, and the version of the parameters."""
        with self._changed:
            return deepcopy(self._current_server(run).watermarks), self._current_server(run).version

    def _wait_for(self, run: str, ask: Callable[[Server], Answer | None]) -> Answer | None:
        """Wait for the server's answer; None if it still has none after PATIENCE_SECONDS."""
        answer: Answer | None = None

        def has_answer() -> bool:
            nonlocal answer
            answer = ask(self._current_server(run))
            return answer is not None

        with self._changed:
            self._changed.wait_for(has_answer, PATIENCE_SECONDS)
        return answer

    def _current_server(self, run: str) -> Server:
        if self._server is None or self._server.run != run:
            raise TrainingError(f"{LOST}; training continues from the last checkpoint")
        return self._server

    def _begin(self, contents: Contents) -> None:
        torch.set_num_threads(contents.plan.settings.strategy_as(Settings).threads_per_shard)
        self._server = Server(contents)
        self._leases = Leases(contents.plan.settings.strategy_as(Settings).staleness)

    def _send_to_backup(self, server: Server, name: str, arguments: tuple[Any, ...]) -> None:
        if self._backup is not None:
            follows: bool = ray.get(self._backup.follow.remote(self._name, server.sequence, name, arguments))
            if not follows:  # it has died, and is a new process
                self._load_backup()

    def _load_backup(self) -> None:
        if self._backup is not None and self._server is not None:
            ray.get(self._backup.load.remote(self._server.contents(), self._name))

"""Parameter servers as Ray actors, and a worker's view of all of them.

Ray places an actor, restarts it when it dies, and sends it again what it had not answered. A restarted server continues with the contents
of its backup, which carries out every command before the sender hears of it. The backup is the same actor without a backup of its own; if
it dies, the next command gives it the server's contents again. A worker calls all servers at a time, and waits as long as they need.
"""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from threading import Condition
from typing import Any
from uuid import uuid4

import ray
import torch
from ray.actor import ActorHandle
from ray.exceptions import RayTaskError

from pipelines.errors import TrainingError
from pipelines.strategies.parameter_server.messages import Contents, Pulled, Push, Ready, StepSums, Turn
from pipelines.strategies.parameter_server.server import Server
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.strategies.parameter_server.watermarks import Leases, Watermarks, incomplete

PATIENCE_SECONDS = 2.0
"""Seconds that a call waits for its answer before the caller has to ask again: callers may have died."""
LOST = "a parameter server has lost its part of the parameters; training continues from the last checkpoint"


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

    def command(self, run: str, method: Callable[..., None], *arguments: Any) -> int:
        """Carry out a command, which is a method of Server, here and in the backup. Returns the number of commands that wait."""
        self._queue += 1
        with self._changed:
            self._queue -= 1
            server = self._current_server(run)
            before = server.sequence
            method(server, *arguments)
            if server.sequence > before and self._backup is not None:
                follows: bool = ray.get(self._backup.follow.remote(self._name, server.sequence, method, arguments))
                if not follows:  # it has died, and is a new process
                    self._load_backup()
            self._changed.notify_all()
            return self._queue

    def follow(self, leader: str, sequence: int, method: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
        """As a backup, carry out command number `sequence` of the process `leader`. Returns false if earlier ones are missing, or
        if this backup follows another process."""
        with self._changed:
            server = self._server
            if server is None or self._follows != leader or server.sequence != sequence - 1:
                return False
            method(server, *arguments)
            return True

    def ask(self, run: str, question: Callable[..., Any], *arguments: Any) -> Any:
        """The answer to a question, which is a method of Server, once there is one; None if there still is none after PATIENCE_SECONDS."""
        answer: Any = None

        def has_answer() -> bool:
            nonlocal answer
            answer = question(self._current_server(run), *arguments)
            return answer is not None

        with self._changed:
            self._changed.wait_for(has_answer, PATIENCE_SECONDS)
        return answer

    def take(self, run: str, worker: int, end: int) -> Turn | None:
        """The worker's next microbatch of a step before `end`, as `ask` answers. Only the first server is asked."""

        def next_turn(server: Server) -> Turn | None:
            marks, limits = server.watermarks, server.limits(end)
            if all(step >= limit for step, limit in zip(marks.next_steps, limits, strict=True)):
                return Turn(is_over=True)
            shard_and_step = self._leases.take(worker, marks, limits, time.monotonic())
            return shard_and_step and Turn(*shard_and_step)

        turn: Turn | None = self.ask(run, next_turn)
        return turn

    def answer(self, run: str, question: Callable[..., Any], *arguments: Any) -> Any:
        """The answer to a question that has one at once."""
        with self._changed:
            return question(self._current_server(run), *arguments)

    def watermarks(self, run: str) -> tuple[Watermarks, int]:
        """A copy of the watermarks, and the version of the parameters."""
        with self._changed:
            return deepcopy(self._current_server(run).watermarks), self._current_server(run).version

    def _current_server(self, run: str) -> Server:
        if self._server is None or self._server.run != run:
            raise TrainingError(LOST)
        return self._server

    def _begin(self, contents: Contents) -> None:
        torch.set_num_threads(contents.plan.settings.strategy_as(Settings).threads_per_shard)
        self._server = Server(contents)
        self._leases = Leases(contents.plan.settings.strategy_as(Settings).staleness)

    def _load_backup(self) -> None:
        if self._backup is not None and self._server is not None:
            ray.get(self._backup.load.remote(self._server.contents(), self._name))


class Servers:
    """The servers in the order of their parts. The first one also holds buffers and statistics.

    Every method raises TrainingError if a server has lost its contents, or if no shard moves for `timeout_seconds`, and
    NonFiniteError once a worker has met a number that is not finite.
    """

    def __init__(self, actors: Sequence[ActorHandle], timeout_seconds: float) -> None:
        self._actors: list[Any] = list(actors)  # whose methods Ray does not type
        self._timeout, self.run = timeout_seconds, ""
        self.most_queued = 0
        """Greatest number of commands that waited at a server when it answered, since it was last read."""

    def run_to_continue(self, saved_step: int, updates_per_step: int) -> str | None:
        """The timeline to continue: that of all servers' contents. None if a server has no contents, or if they are of several timelines.

        None also if the servers lack the sums of a step since `saved_step`, as when the newest checkpoint is damaged: they may be in a
        later epoch than the checkpoint."""
        timelines = set(_get([actor.run.remote() for actor in self._actors]))
        if len(timelines) != 1 or timelines == {""}:
            return None
        (self.run,) = timelines  # the calls below name it
        _, versions = self.positions()
        steps_since = versions[0] // updates_per_step - saved_step
        return self.run if len(self.steps_after(saved_step)) >= steps_since else None

    def load(self, contents: Sequence[Contents]) -> None:
        _get([actor.load.remote(part) for actor, part in zip(self._actors, contents, strict=True)])

    def contents(self) -> list[Contents]:
        contents = _get([actor.contents.remote() for actor in self._actors])
        if None in contents or {part.run for part in contents} != {self.run}:
            raise TrainingError(LOST)
        return contents

    def positions(self) -> tuple[list[int], list[int]]:
        """Each shard's next step at the server that has the fewest of its updates; and each server's version."""
        marks, versions = zip(*_get([actor.watermarks.remote(self.run) for actor in self._actors]), strict=True)
        return [min(steps) for steps in zip(*(mark.next_steps for mark in marks), strict=True)], list(versions)

    def incomplete(self) -> list[tuple[int, int]]:
        """Shard and step of the updates that some servers lack: a worker died before it had sent them to all."""
        return incomplete([marks for marks, _ in _get([actor.watermarks.remote(self.run) for actor in self._actors])])

    def take(self, worker: int, end: int) -> tuple[int, int] | None:
        """Shard and step of the worker's next microbatch before step `end`; waits until one may begin. None if there is no more."""
        turn: Turn = self._ask([partial(self._actors[0].take.remote, self.run, worker, end)])[0]
        return None if turn.is_over else (turn.shard, turn.step)

    def pull(self, step: int, have: Sequence[int | None]) -> list[Pulled] | None:
        """The parameters to compute a microbatch of `step` with; waits until it may begin. None if the servers are halted."""
        versions = zip(self._actors, have, strict=True)
        answers: list[Pulled] = self._ask([partial(actor.ask.remote, self.run, Server.pull, step, version) for actor, version in versions])
        return None if any(answer.is_halted for answer in answers) else answers

    def current(self, have: Sequence[int | None]) -> list[Pulled]:
        return _get([actor.answer.remote(self.run, Server.current, version) for actor, version in zip(self._actors, have, strict=True)])

    def push(self, updates: Sequence[Push]) -> None:
        """Send every server its part of an update; returns when all servers, and their backups, have it.

        The first server comes last: what its watermarks say has been applied everywhere, also if this worker dies in between.
        """
        later = zip(self._actors[1:], updates[1:], strict=True)
        self._note_queues([actor.command.remote(self.run, Server.push, update) for actor, update in later])
        self._note_queues([self._actors[0].command.remote(self.run, Server.push, updates[0])])

    def ready(self, step: int) -> list[Ready]:
        return self._ask([partial(actor.ask.remote, self.run, Server.ready, step) for actor in self._actors])

    def may_begin(self, step: int) -> bool | None:
        """Whether synchronous step `step` may begin; False if the servers are halted before, None if it takes longer."""
        answers = _get([actor.ask.remote(self.run, Server.may_begin, step) for actor in self._actors])
        return False if False in answers else None if None in answers else True

    def steps_after(self, number: int) -> list[StepSums]:
        return _get([self._actors[0].answer.remote(self.run, Server.steps_after, number)])[0]

    def command(self, method: Callable[..., None], *arguments: Any) -> None:
        """Give all servers a command, which is a method of Server."""
        self._note_queues([actor.command.remote(self.run, method, *arguments) for actor in self._actors])

    def _note_queues(self, commands: Sequence[ray.ObjectRef]) -> None:
        self.most_queued = max(self.most_queued, *_get(commands), 0)

    def _ask(self, calls: Sequence[Callable[[], ray.ObjectRef]]) -> list[Any]:
        """Make these calls of servers, and again any that has no answer yet, until all have one."""
        answers: list[Any] = [None] * len(calls)
        moved, before = time.monotonic(), None
        while True:
            missing = [number for number, answer in enumerate(answers) if answer is None]
            for number, answer in zip(missing, _get([calls[number]() for number in missing]), strict=True):
                answers[number] = answer
            if all(answer is not None for answer in answers):
                return answers
            positions = self.positions()[0]
            if positions != before:
                moved, before = time.monotonic(), positions
            elif time.monotonic() - moved > self._timeout:
                behind = [shard for shard, step in enumerate(positions) if step == min(positions)]
                raise TrainingError(
                    f"no update has arrived for {self._timeout:g} s; shards {behind} are the last, at step {min(positions)}: check "
                    "their workers, or raise train.timeout_seconds if a microbatch may take that long"
                )


def _get(calls: Sequence[ray.ObjectRef]) -> list[Any]:
    """Wait for the calls' results. Raises the server's own error, without Ray's wrapping."""
    try:
        return ray.get(list(calls))
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None

"""A worker's progress with parameter servers: pull, compute one shard's microbatch, push, until the servers are quiescent.

In mode `sync` a worker computes the shards that it owns; else it takes the next microbatch that nobody else has. The servers'
watermarks say what has been applied: so a restarted worker continues where they are. Servers are quiescent at the end of an epoch, and
wherever the run is to be saved or stopped. Only then the state is consistent, and no microbatch begins before the loop has acted.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any
from uuid import uuid4

from pipelines.data.loader import Loader
from pipelines.data.loader.order import ORDER_VERSION
from pipelines.errors import NonFiniteError
from pipelines.strategies.parameter_server.messages import Plan, StepSums
from pipelines.strategies.parameter_server.server import Server
from pipelines.strategies.parameter_server.server_actors import Servers
from pipelines.strategies.parameter_server.worker_model import WorkerModel
from pipelines.tasks.base import Batch
from pipelines.train.run_context import RunContext
from pipelines.train.step_clock import DATA, EXCHANGE, OTHER
from pipelines.train.step_statistics import StepStatistics
from pipelines.train.strategy import ConsistentPoint
from pipelines.train.workers import all_gather_object, broadcast_from_rank0

SKIPPED = 16
"""Microbatches that a stream leaves out, at most, to reach a later step; beyond that, reading begins anew."""


@dataclass
class _Stream:
    microbatches: Iterator[Batch]
    next: int
    """Step of the next microbatch, in the epoch that ends at step `end`."""
    end: int


class Streams(Loader):
    """A loader that reads shards one by one: those of this worker, and any other. Its position is only that of the next checkpoint."""

    def __init__(self, *arguments: Any, prefetch_bytes: int, **options: Any) -> None:
        self._capacity = len(arguments[3]) + 1
        """Number of shards that are read at a time, the last requested ones: one more than this worker has."""
        super().__init__(*arguments, prefetch_bytes=max(1, prefetch_bytes // self._capacity), **options)
        self._streams: dict[int, _Stream] = {}
        """By shard; the last requested one is last."""

    def go_to(self, step: int) -> None:
        """Move to step `step` of the run."""
        epoch, within = divmod(step, self.steps_per_epoch)
        self.load_state_dict({"epoch": epoch, "step": within, "order_version": ORDER_VERSION})

    def take(self, shard: int, step: int) -> Batch:
        """The shard's microbatch of step `step` of the run. The next ones are read ahead, up to the end of the epoch."""
        stream = self._streams.get(shard)
        if stream is None or not (stream.next <= step <= stream.next + SKIPPED and step < stream.end):
            self._close_stream(shard)
            self.go_to(step)
            stream = _Stream(self.stream(shard), step, (step // self.steps_per_epoch + 1) * self.steps_per_epoch)
        self._streams[shard] = self._streams.pop(shard, stream)
        for oldest in list(self._streams)[: -self._capacity]:
            self._close_stream(oldest)
        for _ in range(step - stream.next):
            next(stream.microbatches)
        stream.next = step + 1
        return next(stream.microbatches)

    def read_ahead(self) -> None:
        """Nothing: each shard's stream reads ahead by itself."""

    def close(self) -> None:
        for shard in list(self._streams):
            self._close_stream(shard)

    def _close_stream(self, shard: int) -> None:
        if shard in self._streams:
            self._streams.pop(shard).microbatches.close()  # type: ignore[attr-defined]  # it is a generator


@dataclass
class Waits:
    """Sums since the last point."""

    microbatches: int = 0
    """Microbatches of this worker."""
    pull_seconds: float = 0.0
    push_seconds: float = 0.0
    steps: list[StepSums] = field(default_factory=list)
    """At least one, when the metrics are read."""

    def metrics(self) -> dict[str, float]:
        """Means over the window, and the greatest staleness, named as in MLflow."""
        metrics = {
            "servers/staleness": fmean(sums.staleness for sums in self.steps),
            "servers/most_stale": max(sums.most_stale for sums in self.steps),
        }
        if self.microbatches:
            metrics["servers/pull_seconds"] = self.pull_seconds / self.microbatches
            metrics["servers/push_seconds"] = self.push_seconds / self.microbatches
        return metrics


class WorkerLoop:
    """One worker's way through the epochs of a run, from quiescent servers to quiescent servers."""

    def __init__(self, model: WorkerModel, servers: Servers, run: RunContext) -> None:
        self._model, self._servers, self._run = model, servers, run
        assert isinstance(run.loader, Streams)
        self._loader, self._is_first_rank = run.loader, model.mesh.context.rank == 0
        self._plan = Plan(run.settings, run.total_steps, run.loader.steps_per_epoch, run.steps_per_point, model.layouts)
        self._next_steps: dict[int, int] = {}
        """The next step of each shard that this worker owns, in mode `sync`."""
        self._versions: list[int | None] = []
        """The version of each server's parameters that this worker has."""
        self._advanced = 0
        """Synchronous steps that all servers have taken."""
        self._is_paused = False
        """Whether the servers are quiescent, and wait until the loop has saved the state."""
        self._waits = Waits()

    def begin(self) -> None:
        """Continue with the servers' contents if all still have theirs; else give them those of the checkpoint. Collective."""
        run, servers = self._run, self._servers
        if self._plan.is_sync:
            self._model.next_steps = [run.state.step] * run.settings.shards
        updates_per_step = 1 if self._plan.is_sync else run.settings.shards
        timeline = broadcast_from_rank0(servers.run_to_continue(run.state.step, updates_per_step) if self._is_first_rank else None)
        if timeline is None:
            timeline = broadcast_from_rank0(uuid4().hex)
            if self._is_first_rank:
                servers.load(self._model.contents(timeline, self._plan))
            all_gather_object(None)  # no worker begins before they are loaded
        servers.run = timeline
        positions, versions = servers.positions()
        self._next_steps = {shard: positions[shard] for shard in self._loader.owned_shards}
        self._versions, self._advanced = [None] * len(versions), min(versions)
        self._is_paused = run.state.step == run.epoch_end  # only the epoch's validation is missing
        if not self._plan.is_sync:
            self._complete()

    def points(self) -> Iterator[ConsistentPoint]:
        """Work to the end of the epoch, and yield whenever the servers are quiescent: a last time at the end."""
        end = self._run.epoch_end
        while self._run.state.step < end:
            if self._is_paused:  # microbatches begin again, once the last save is complete: the servers forget the steps before
                self._run.saver.commit()
                all_gather_object(None)
                if self._is_first_rank:
                    self._servers.command(Server.resume, self._run.saver.saved_step)
                all_gather_object(None)
                self._is_paused = False
            self._run.start_timing()
            failure_and_stop = all_gather_object((self._work_until(end), self._run.hooks.must_stop_training()))  # all updates have arrived
            _raise_first(failure for failure, _ in failure_and_stop)
            self._run.log_phase_times()
            self._settle()
            is_stop_due = any(stop for _, stop in failure_and_stop)
            yield ConsistentPoint(save=True, stop=is_stop_due and self._run.state.step < end)

    def metrics(self) -> dict[str, float]:
        """Waiting and staleness since the last call."""
        waits, self._waits = self._waits, Waits()
        queued, self._servers.most_queued = self._servers.most_queued, 0
        return {**waits.metrics(), "servers/queue": float(queued)}

    def _complete(self) -> None:
        """Compute the updates that only some servers have, since a worker died between them. Collective.

        Raises NonFiniteError, on all workers alike, if a number of them is not finite."""
        failure = ""
        try:
            for shard, step in self._servers.incomplete() if self._is_first_rank else ():
                self._pull(step)
                self._compute(shard, step)
        except NonFiniteError as error:
            failure = str(error)
        _raise_first(all_gather_object(failure))

    def _work_until(self, end: int) -> str:
        """Compute microbatches until all shards are at step `end`, or until the servers let none begin. Returns what is wrong if a
        number is not finite, with any worker."""
        self._model.clock.enter(EXCHANGE)
        next_turn = self._next_owned if self._plan.is_sync else self._next_free
        try:
            while (turn := next_turn(end)) is not None:
                self._compute(*turn)
        except NonFiniteError as error:
            self._servers.command(Server.fail, str(error))
            return str(error)
        finally:
            self._model.clock.enter(OTHER)
        return ""

    def _next_owned(self, end: int) -> tuple[int, int] | None:
        """Of this worker's shards, the one that is furthest behind, and its step; waits until it may begin."""
        if self._is_first_rank:
            self._advance(min(self._next_steps.values()))
        shard = min(self._next_steps, key=lambda shard: self._next_steps[shard])
        step = self._next_steps[shard]
        self._run.hooks.step(step)
        if shard == self._loader.owned_shards[0]:
            self._count_steps()
        if step < end:
            return (shard, step) if self._pull(step) else None
        while self._servers.may_begin(end) is None:
            self._count_steps()
        return None

    def _next_free(self, end: int) -> tuple[int, int] | None:
        """The shard and step that the first server hands out; waits until it may begin."""
        self._count_steps()
        began = time.perf_counter()
        turn = self._servers.take(self._model.mesh.context.rank, end)
        self._waits.pull_seconds += time.perf_counter() - began
        if turn is not None:
            self._run.hooks.step(turn[1])
            self._pull(turn[1])
        return turn

    def _count_steps(self) -> None:
        """On rank 0, count finished steps, and halt the servers if the run is to be saved or stopped."""
        run = self._run
        if not self._is_first_rank:
            return
        finished = self._servers.steps_after(run.state.step)
        seconds, wait_seconds = run.lap() if finished else (0.0, 0.0)
        for sums in finished:
            self._waits.steps.append(sums)
            step = StepStatistics(sums.number, sums.grad_norm, 0.0, sums.loss_sum, sums.weight, sums.rows, 0, 0, 0)
            run.count([step], seconds / len(finished), wait_seconds / len(finished))
        if run.hooks.must_stop_training() or run.saver.is_due(run.state.step):
            self._servers.command(Server.halt)

    def _pull(self, step: int) -> bool:
        """Fetch what is newer than this worker's parameters, once a microbatch of `step` may begin; False if none may."""
        if self._plan.is_sync and all(version == step for version in self._versions):
            return True  # the worker has begun this step
        began = time.perf_counter()
        pulled = self._servers.pull(step, self._versions)
        self._waits.pull_seconds += time.perf_counter() - began
        if pulled is None:
            return False
        self._model.take(pulled)
        self._versions = [answer.version for answer in pulled]
        return True

    def _compute(self, shard: int, step: int) -> None:
        """Compute the shard's microbatch with the parameters that were pulled, and push its update."""
        versions, clock = [version or 0 for version in self._versions], self._model.clock
        clock.enter(DATA)
        microbatch = self._loader.take(shard, step)
        clock.start_step()
        updates = self._model.updates(microbatch, shard, step, versions, self._plan)
        clock.enter(EXCHANGE)
        clock.read()
        began = time.perf_counter()
        self._servers.push(updates)
        self._waits.push_seconds += time.perf_counter() - began
        self._waits.microbatches += 1
        if self._plan.is_sync:
            self._next_steps[shard] = step + 1

    def _advance(self, until: int) -> None:
        """Take the synchronous steps before `until`, each as soon as all servers have the gradients of all shards.

        A server takes a step only after all have its gradients: else a worker killed between two pushes could not compute the
        second again, with the parameters of before the step.
        """
        while self._advanced < until:
            norm = self._model.norm(self._servers.ready(self._advanced), self._plan)
            self._servers.command(Server.advance, self._advanced, norm)
            self._advanced += 1

    def _settle(self) -> None:
        """Take all that the quiescent servers hold, on every worker alike: their state can be evaluated and saved. Collective."""
        self._count_steps()
        self._run.state.step = broadcast_from_rank0(self._run.state.step)
        pulled = self._servers.current(self._versions)
        self._model.take(pulled)
        self._versions = [answer.version for answer in pulled]
        self._model.collect(self._servers.contents())
        self._loader.go_to(self._run.state.step)
        self._is_paused = True


def _raise_first(failures: Iterable[str]) -> None:
    if failure := next(filter(None, failures), ""):
        raise NonFiniteError(failure)

"""The loop of a worker with parameter servers: pull, compute one shard's microbatch, push, until the epoch ends.

In mode `sync` a worker computes the shards that it owns; else it takes the next microbatch that nobody else has. The servers'
watermarks say what has been applied: so a restarted worker goes on where they are. At the end of an epoch, and for every
checkpoint, all workers wait until the servers are quiescent. What is done then (validation, best epoch, checkpoints, test) is the
ordinary loop's.
"""

import time
from uuid import uuid4

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.errors import NonFiniteError
from pipelines.strategies.parameter_server.client import Servers
from pipelines.strategies.parameter_server.messages import Plan, StepSums
from pipelines.strategies.parameter_server.strategy import ParameterServerStrategy
from pipelines.strategies.parameter_server.streams import Streams
from pipelines.strategies.parameter_server.waits import Waits
from pipelines.tasks.base import Task
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.epochs import EpochLoop
from pipelines.train.hooks import Hooks
from pipelines.train.phases import DATA, EXCHANGE, OTHER
from pipelines.train.reduce.agreement import all_gather_object, broadcast_from_rank0
from pipelines.train.step_statistics import StepStatistics


class ServedLoop(EpochLoop):
    """The loop of one worker."""

    loader_class = Streams
    _strategy: ParameterServerStrategy
    _loader: Streams

    def __init__(
        self,
        config: Config,
        version: Version,
        task: Task,
        strategy: ParameterServerStrategy,
        checkpoints: Checkpoints,
        hooks: Hooks,
    ) -> None:
        super().__init__(config, version, task, strategy, checkpoints, hooks)
        self._servers = Servers(strategy.servers, self._settings.timeout_seconds)
        self._plan = Plan(self._settings, self._total, self._loader.steps_per_epoch, self._stride, strategy.layouts)
        self._positions: dict[int, int] = {}
        """The next step of each shard that this worker owns, in mode `sync`."""
        self._have: list[int | None] = []
        """The version of each server's parameters that this worker has."""
        self._advanced = 0
        """Synchronous steps that all servers have taken."""
        self._waits = Waits()

    def _resume(self) -> None:
        """Resume from the servers if all still have their contents; else give them those of the checkpoint."""
        super()._resume()
        if self._plan.is_sync:
            self._strategy.next_steps = [self._state.step] * self._settings.shards
        updates_per_step = 1 if self._plan.is_sync else self._settings.shards
        run = broadcast_from_rank0(self._servers.run_to_continue(self._state.step, updates_per_step) if self._context.rank == 0 else None)
        if run is None:
            run = broadcast_from_rank0(uuid4().hex)
            if self._context.rank == 0:
                self._servers.load(self._strategy.contents(run, self._plan))
            all_gather_object(None)  # no worker begins before they are loaded
        self._servers.run = run
        positions, versions = self._servers.positions()
        self._positions = {shard: positions[shard] for shard in self._loader.owned_shards}
        self._have, self._advanced = [None] * len(versions), min(versions)
        if not self._plan.is_sync:
            self._complete()

    def _complete(self) -> None:
        """Compute the updates that only some servers have, since a worker died between them. Collective."""
        if self._context.rank == 0:
            for shard, step in self._servers.incomplete():
                self._pull(step)
                self._compute(shard, step)
        all_gather_object(None)

    def _train_epoch(self) -> bool:
        """Run the remaining microbatches of the epoch. Returns False if the run was asked to stop and has been saved."""
        state = self._state
        end = min(state.validated + self._loader.steps_per_epoch, self._total)
        self._stopwatch.start(self._loader.wait_seconds)
        while True:
            ends = all_gather_object((self._worked_until(end), self._hooks.asked_to_stop()))  # all updates have arrived
            if failure := next((text for text, _ in ends if text), ""):
                raise NonFiniteError(failure)
            times = self._phase_times.metrics(state.step, is_last=True)
            self._settle()
            if self._context.rank == 0:
                self._hooks.log(state.step, times)
            if state.step == end:
                return True
            self._save(best=False)
            self._saver.commit()
            if any(stop for _, stop in ends):
                return False
            self._go_on()
            self._stopwatch.start(self._loader.wait_seconds)

    def _worked_until(self, end: int) -> str:
        """Work until all shards are at step `end`. Returns what is wrong if a number is not finite, with any worker."""
        self._clock.enter(EXCHANGE)
        try:
            self._work_until(end)
        except NonFiniteError as error:
            self._servers.fail(str(error))
            return str(error)
        finally:
            self._clock.enter(OTHER)
        return ""

    def _times(self, step: int) -> dict[str, float]:
        return {}  # workers meet at the end of an epoch only

    def _work_until(self, end: int) -> None:
        """Compute microbatches until all shards are at step `end`, or until the servers let none begin."""
        next_turn = self._own_turn if self._plan.is_sync else self._any_turn
        while (turn := next_turn(end)) is not None:
            self._compute(*turn)

    def _own_turn(self, end: int) -> tuple[int, int] | None:
        """Of this worker's shards, the one that is furthest behind, and its step; waits until it may begin."""
        if self._context.rank == 0:
            self._advance(min(self._positions.values()))
        shard = min(self._positions, key=lambda shard: self._positions[shard])
        step = self._positions[shard]
        self._hooks.step(step)
        if shard == self._loader.owned_shards[0]:
            self._look_after()
        if step < end:
            return (shard, step) if self._pull(step) else None
        while self._servers.may_begin(end) is None:
            self._look_after()
        return None

    def _any_turn(self, end: int) -> tuple[int, int] | None:
        """The shard and step that the first server hands out; waits until it may begin."""
        self._look_after()
        began = time.perf_counter()
        turn = self._servers.take(self._context.rank, end)
        self._waits.pull_seconds += time.perf_counter() - began
        if turn is not None:
            self._hooks.step(turn[1])
            self._pull(turn[1])
        return turn

    def _look_after(self) -> None:
        """On rank 0, count finished steps, and halt the servers if the run is to be saved or stopped."""
        if self._context.rank:
            return
        finished = self._servers.steps_after(self._state.step)
        seconds, waited = self._stopwatch.lap(self._loader.wait_seconds) if finished else (0.0, 0.0)
        for sums in finished:
            self._finished(sums, seconds / len(finished), waited / len(finished))
        if self._hooks.asked_to_stop() or self._saver.is_due(self._state.step):
            self._servers.halt()

    def _finished(self, sums: StepSums, seconds: float, waited: float) -> None:
        """Count a step, which took so many seconds, and waited so many of them for data."""
        self._state.step = sums.number
        self._waits.steps.append(sums)
        step = StepStatistics(sums.number, sums.grad_norm, 0.0, sums.loss_sum, sums.weight, sums.rows, 0, 0, 0)
        self._count([step], seconds, waited)
        if self._is_point(sums.number):
            waits, self._waits = self._waits, Waits()
            self._hooks.log(sums.number, {**waits.metrics(), "servers/queue": float(self._servers.most_queued)})
            self._servers.most_queued = 0

    def _pull(self, step: int) -> bool:
        """Fetch what is newer than this worker's parameters, once a microbatch of `step` may begin; False if none may."""
        if self._plan.is_sync and all(version == step for version in self._have):
            return True  # the worker has begun this step
        began = time.perf_counter()
        pulled = self._servers.pull(step, self._have)
        self._waits.pull_seconds += time.perf_counter() - began
        if pulled is None:
            return False
        self._strategy.take(pulled)
        self._have = [answer.version for answer in pulled]
        return True

    def _compute(self, shard: int, step: int) -> None:
        """Compute the shard's microbatch with the parameters that were pulled, and push its update."""
        versions = [version or 0 for version in self._have]
        self._clock.enter(DATA)
        microbatch = self._loader.take(shard, step)
        self._clock.start_step()
        updates = self._strategy.updates(microbatch, shard, step, versions, self._plan)
        self._clock.enter(EXCHANGE)
        self._clock.read()
        began = time.perf_counter()
        self._servers.push(updates)
        self._waits.push_seconds += time.perf_counter() - began
        self._waits.microbatches += 1
        if self._plan.is_sync:
            self._positions[shard] = step + 1

    def _advance(self, until: int) -> None:
        """Take the synchronous steps before `until`, each as soon as all servers have the gradients of all shards.

        A server takes a step only after all have its gradients: else a worker killed between two pushes could not compute the
        second again, with the parameters of before the step.
        """
        while self._advanced < until:
            norm = self._strategy.norm(self._servers.ready(self._advanced), self._plan)
            self._servers.advance(self._advanced, norm)
            self._advanced += 1

    def _settle(self) -> None:
        """Take the servers' present parameters, on every worker alike. Collective; the servers are quiescent."""
        self._look_after()
        self._state.step = broadcast_from_rank0(self._state.step)
        pulled = self._servers.current(self._have)
        self._strategy.take(pulled)
        self._have = [answer.version for answer in pulled]

    def _go_on(self) -> None:
        """Let microbatches begin again, after a checkpoint. Collective."""
        all_gather_object(None)
        if self._context.rank == 0:
            self._servers.resume(self._saver.saved_step)
        all_gather_object(None)

    def _saves(self, is_best: bool) -> bool:
        return True  # a restarted group takes up the servers as they are, which may be steps after the epoch, but not its validation

    def _validate(self) -> bool:
        validated = super()._validate()
        self._saver.commit()
        if validated:
            self._go_on()
        return validated

    def _save(self, best: bool) -> None:
        self._strategy.collect(self._servers.contents())
        self._loader.go_to(self._state.step)
        super()._save(best)

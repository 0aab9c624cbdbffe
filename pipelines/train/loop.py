"""The loop of synchronous training: the steps of an epoch, each taken by all workers together."""

from collections.abc import Iterator
from typing import Any

from pipelines.config import Config
from pipelines.data.versions.versions import Version
from pipelines.tasks.base import Task
from pipelines.train.balance import ShardBalancer
from pipelines.train.checkpoint.checkpoints import Checkpoints
from pipelines.train.epochs import EpochLoop
from pipelines.train.hooks import Hooks
from pipelines.train.phases import DATA, OTHER
from pipelines.train.step import Flags
from pipelines.train.step_statistics import StepStatistics
from pipelines.train.strategy import Strategy


class Loop(EpochLoop):
    """`balance: auto` deals shards anew between steps."""

    def __init__(self, config: Config, version: Version, task: Task, strategy: Strategy, checkpoints: Checkpoints, hooks: Hooks) -> None:
        super().__init__(config, version, task, strategy, checkpoints, hooks)
        balanced = self._settings.balance.kind == "auto" and strategy.mesh.replicas > 1
        self._balance = ShardBalancer(strategy, self._settings, hooks) if balanced else None

    def _train_epoch(self) -> bool:
        """Run the remaining steps of the epoch. Returns False if the run was asked to stop and has been saved."""
        state = self._state
        if state.step > state.validated and state.step in (self._total, state.validated + self._loader.steps_per_epoch):
            return True  # the run was stopped after the epoch's last step
        self._stopwatch.start(self._loader.wait_seconds)
        self._clock.enter(DATA)
        for batch in self._batches():
            if not self._step(batch):
                return False
            if state.step == self._total:
                break
            self._clock.enter(DATA)
        self._clock.enter(OTHER)
        return self._follow_up(self._pending.read())

    def _batches(self) -> Iterator[Any]:
        """The rest of the epoch, read anew whenever the shards have been dealt anew."""
        while True:
            for batch in self._strategy.batches(self._loader):
                yield batch
                is_last = self._state.step % self._loader.steps_per_epoch == 0
                if self._balance and not is_last and self._deals(self._balance):
                    self._loader.own(self._strategy.mesh.worker_shards(self._settings.shards))
                    break
            else:
                return

    def _deals(self, balance: ShardBalancer) -> bool:
        self._clock.enter(OTHER)
        dealt, self._left_out = balance.deal(self._state.step), balance.left_out
        self._clock.enter(DATA)
        return dealt

    def _step(self, batch: Any) -> bool:
        """Run one optimizer step. Returns False if the run was asked to stop and has been saved."""
        number = self._state.step
        self._hooks.step(number)
        flags = Flags(save=self._saver.is_due(number + 1), stop=self._is_to_stop(), written=self._saver.is_written)
        self._clock.start_step()
        result = self._strategy.step(batch, number, self._rate(number), flags, measured=self._is_point(number + 1))
        self._clock.enter(OTHER)
        self._state.step += 1
        return self._follow_up(self._pending.add(self._state.step, result))

    def _is_to_stop(self) -> bool:
        return self._hooks.asked_to_stop() or bool(self._left_out)

    def _follow_up(self, steps: list[StepStatistics]) -> bool:
        """Check and count finished steps, and act on the workers' flags. Returns False if a worker was asked to stop."""
        if not steps:
            return True
        self._clock.read()
        self._count(steps, *self._stopwatch.lap(self._loader.wait_seconds))
        last = steps[-1]
        if last.written == self._context.world_size:
            self._saver.commit()
        if any(step.stop for step in steps):
            self._save(best=False)
            self._saver.commit()
            return False
        if any(step.save for step in steps) and last.number % self._loader.steps_per_epoch and last.number != self._total:
            self._save(best=False)
            self._stopwatch.start(self._loader.wait_seconds)
        return True

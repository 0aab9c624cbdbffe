"""A parameter server without its network: a part of the parameters, its optimizer, and a watermark for every logical shard.

Commands change the state, and the same commands in the same order give the same state bit for bit: so a second server that is
sent them is a backup. An update is applied in the same command that notes it in the watermarks; sending it again changes nothing.
"""

from dataclasses import replace

import torch
from torch import Tensor

from pipelines.errors import NonFiniteError, TrainingError
from pipelines.strategies.parameter_server.messages import SUMS_OF_STEP, Contents, Pulled, Push, Ready, StepSums
from pipelines.strategies.parameter_server.part import Part
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.strategies.parameter_server.summed import norms, summed
from pipelines.strategies.parameter_server.watermarks import Watermarks
from pipelines.train.update import mean_factor, rescale


class Server:
    """Continues from `contents`, which it takes over."""

    def __init__(self, contents: Contents) -> None:
        self._held, self._part = contents, Part(contents)
        self._settings = contents.plan.settings
        self._shards, self._sync = self._settings.shards, contents.plan.is_sync
        self._total: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        """The sums of a synchronous step that is ready; they can be computed again."""

    @property
    def run(self) -> str:
        return self._held.run

    @property
    def sequence(self) -> int:
        return self._held.sequence

    @property
    def watermarks(self) -> Watermarks:
        return self._held.watermarks

    @property
    def version(self) -> int:
        """The number of optimizer steps or, unless synchronous, of updates that the parameters have had."""
        return self._held.applied if self._sync else self.watermarks.applied

    def contents(self) -> Contents:
        """The live state, to be copied before the next command."""
        return replace(self._held, optimizer=self._part.optimizer, buffers=self._part.buffers)

    # Commands.

    def push(self, update: Push) -> None:
        """Apply an update, or collect it for its step, and note it in the watermarks. One that is known already changes nothing.

        Raises TrainingError for one that is ahead of the step in progress, in mode `sync`.
        """
        held = self._held
        if held.watermarks.has(update.shard, update.step):
            return
        if self._sync and update.step != held.applied:
            due = held.watermarks.next_steps[update.shard]
            raise TrainingError(f"shard {update.shard} sent step {update.step}, but its next one is {due}: an update is missing")
        held.sequence += 1
        if self._sync:
            held.collected[update.shard] = update
            held.watermarks.add(update.shard, update.step)
            if len(held.collected) == self._shards:
                self._total = self._summed()
                held.ready = self._ready(*self._total)
        else:
            self._apply(update)
            held.watermarks.add(update.shard, update.step)
            if self.version % self._shards == 0:
                self._close(self.version // self._shards)

    def advance(self, step: int, norm: float) -> None:
        """Take synchronous step `step`, whose gradients must all be here; `norm` is that of all parts (-1 if not needed)."""
        held = self._held
        if step < held.applied:
            return
        assert step == held.applied and len(held.collected) == self._shards, "the caller waits until the step is ready"
        held.sequence += 1
        gradient, used, sums, changes = self._total or self._summed()
        loss, weight, rows, with_rows, _ = sums
        gradients = self._part.set_gradients(gradient, used)
        factor = mean_factor(self._settings.global_batch, weight)
        rescale(gradients, factor, torch.tensor(norm, dtype=torch.float64), self._settings.clip_norm)
        self._part.take_step(step)
        self._part.move_buffers(changes / with_rows.clamp(min=1))
        held.sums = [max(norm, 0.0), float(norm >= 0), float(loss), float(weight), float(rows), 0.0, 0.0]
        held.collected, held.applied, self._total = {}, step + 1, None
        self._close(step + 1)

    def halt(self) -> None:
        """Let no further microbatch begin; but all may complete a synchronous step that has begun, or fill gaps before early updates."""
        if self._held.halt_at is None:
            self._held.sequence += 1
            self._held.halt_at = self._held.applied + 1 if self._sync else 0

    def resume(self, saved: int) -> None:
        """Let microbatches begin again, and forget the sums up to the step that a checkpoint has `saved`."""
        self._held.sequence += 1
        self._held.halt_at = None
        self._held.steps = [sums for sums in self._held.steps if sums.number > saved]

    def fail(self, text: str) -> None:
        """Make every later question raise NonFiniteError."""
        self._held.sequence += 1
        self._held.failure = self._held.failure or text

    # Answers; None if the caller has to wait.

    def pull(self, step: int, have: int | None) -> Pulled | None:
        """The parameters to compute a microbatch of `step` with, if it may begin. `have` is the version that the worker has."""
        self.check()
        held, mode = self._held, self._settings.strategy_as(Settings)
        if self._sync and held.halt_at is not None and step >= held.halt_at:
            return Pulled(is_halted=True)
        if self._sync and step > held.applied:
            return None
        if mode.mode == "bounded" and step > held.watermarks.lowest + (mode.staleness or 0):
            return None
        return self.current(have)

    def current(self, have: int | None) -> Pulled:
        if have == self.version:
            return Pulled(version=self.version)
        buffers = [values.numpy() for values in self._part.buffers]
        return Pulled(version=self.version, values=self._held.values.numpy().copy(), buffers=buffers)

    def ready(self, step: int) -> Ready | None:
        """What the norm of synchronous step `step` needs, once all its gradients are here, and until the next step's are."""
        self.check()
        found = self._held.ready
        return found if found is not None and found.step == step else None

    def may_begin(self, step: int) -> bool | None:
        """True once synchronous step `step` may begin; False if the servers are halted before."""
        self.check()
        held = self._held
        if held.applied >= step:
            return True
        return False if held.halt_at is not None and held.applied >= held.halt_at else None

    def limits(self, end: int) -> list[int]:
        """The step at which each shard ends, unless synchronous: `end`, or as early as can be once the servers are halted."""
        self.check()
        return [end] * self._shards if self._held.halt_at is None else self.watermarks.without_gaps()

    def steps_after(self, number: int) -> list[StepSums]:
        return [sums for sums in self._held.steps if sums.number > number]

    def check(self) -> None:
        """Raise NonFiniteError once a worker has met a number that is not finite."""
        if self._held.failure:
            raise NonFiniteError(self._held.failure)

    # Parts of commands.

    def _apply(self, update: Push) -> None:
        """Take an optimizer step with one microbatch's mean gradient, which the worker has clipped."""
        used, sums, changes = self._part.split(torch.tensor(update.beside))
        loss, weight, rows, _, norm = sums.tolist()
        if update.gradient is not None:
            self._part.set_gradients(torch.tensor(update.gradient), used)
            self._part.take_step(min(self.version // self._shards, self._held.plan.total_steps - 1))
            self._part.move_buffers_by_share(changes)
        stale, before = float(self.version - update.version), self._held.sums
        self._held.sums = [
            *(have + more for have, more in zip(before, [max(norm, 0.0), float(norm >= 0), loss, weight, rows, stale], strict=False)),
            max(before[-1], stale),
        ]

    def _close(self, number: int) -> None:
        """End the current sums, which become those of step `number`."""
        held = self._held
        norms, measured, loss, weight, rows, stale, most = held.sums
        norm = norms / measured if measured else -1.0
        held.steps.append(StepSums(number, norm, loss, weight, rows, stale / self._shards, most))
        held.sums = [0.0] * SUMS_OF_STEP

    def _summed(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradient, flags of pieces, sums and changes of the step in progress, over all shards."""
        collected = [self._held.collected[shard] for shard in range(self._shards)]
        gradient = summed([each.gradient for each in collected], len(self._held.values))
        return gradient, *self._part.split(summed([each.beside for each in collected]))

    def _ready(self, gradient: Tensor, used: Tensor, sums: Tensor, changes: Tensor) -> Ready:
        held = self._held
        needed = held.pieces if held.plan.needs_norm(held.applied) else []
        whole, split = norms(gradient, used, needed, held.plan.layouts)
        return Ready(held.applied, float(sums[1]), whole, split)

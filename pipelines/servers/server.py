"""A parameter server without its network: a part of the parameters, its optimizer, and a watermark for every logical shard.

Commands change the state, and the same commands in the same order give the same state bit for bit: so a second server that is
sent them is a backup. An update is applied in the same command that moves its shard's watermark; sending it again changes nothing.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from pipelines.errors import NonFiniteError, TrainingError
from pipelines.parallel.buffers import ModelBuffers
from pipelines.parallel.optimizer import optimizer
from pipelines.parallel.update import mean_factor, rescale, set_rate
from pipelines.servers.messages import SUMS_OF_STEP, Contents, Pulled, Push, Ready, StepSums
from pipelines.servers.summed import norms, summed
from pipelines.train.schedule import learning_rate

SUMS = 5
"""Entries of `Push.beside` between the flags of pieces and the changes of buffers."""


class Server:
    """Continues from `contents`, which it takes over."""

    def __init__(self, contents: Contents) -> None:
        self._held = contents
        self._settings = contents.plan.settings
        self._shards, self._sync = self._settings.shards, contents.plan.is_sync
        sizes = [piece.size for piece in contents.pieces]
        self._parameters = [nn.Parameter(view) for view in contents.values.split(sizes)]
        self._optimizer = optimizer(self._settings, self._parameters)
        for parameter, state in zip(self._parameters, contents.optimizer, strict=True):
            if state:
                self._optimizer.state[parameter] = state
        self._buffers = ModelBuffers(_holding(contents.buffers))
        self._total: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        """The sums of a synchronous step that is ready; they can be computed again."""

    @property
    def run(self) -> str:
        return self._held.run

    @property
    def sequence(self) -> int:
        return self._held.sequence

    @property
    def next_steps(self) -> list[int]:
        return list(self._held.next_steps)

    @property
    def version(self) -> int:
        """The number of optimizer steps or, unless synchronous, of updates that the parameters have had."""
        return self._held.applied if self._sync else sum(self._held.next_steps)

    def contents(self) -> Contents:
        """The live state, to be copied before the next command."""
        states = [dict(self._optimizer.state.get(parameter, {})) for parameter in self._parameters]
        return replace(self._held, optimizer=states, buffers=self._buffers.clones())

    # Commands.

    def push(self, update: Push) -> None:
        """Apply an update, or collect it, and move its shard's watermark. An update that is known already changes nothing.

        Raises TrainingError if an earlier update of the shard is missing.
        """
        held, due = self._held, self._held.next_steps[update.shard]
        if update.step < due:
            return
        if update.step > due or (self._sync and update.step != held.applied):
            raise TrainingError(f"shard {update.shard} sent step {update.step}, but its next one is {due}: an update is missing")
        held.sequence += 1
        if self._sync:
            held.collected[update.shard] = update
            held.next_steps[update.shard] += 1
            if len(held.collected) == self._shards:
                self._total = self._summed()
                held.ready = self._ready(*self._total)
        else:
            self._apply(update)
            held.next_steps[update.shard] += 1
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
        gradients = self._set_gradients(gradient, used)
        factor = mean_factor(self._settings.global_batch, weight)
        rescale(gradients, factor, torch.tensor(norm, dtype=torch.float64), self._settings.clip_norm)
        self._take_step(step)
        self._buffers.move(self._buffers.clones(), changes / with_rows.clamp(min=1))
        held.sums = [max(norm, 0.0), float(norm >= 0), float(loss), float(weight), float(rows), 0.0, 0.0]
        held.collected, held.applied, self._total = {}, step + 1, None
        self._close(step + 1)

    def halt(self) -> None:
        """Let no further microbatch begin; in mode `sync`, the step in progress is completed by all."""
        if self._held.halt_at is None:
            self._held.sequence += 1
            self._held.halt_at = self._held.applied + 1 if self._sync else 0

    def resume(self, saved: int) -> None:
        """Let microbatches begin again, and forget the sums up to the step that a checkpoint has `saved`."""
        self._held.sequence += 1
        self._held.halt_at = None
        self._held.steps = [sums for sums in self._held.steps if sums.number > saved]

    def fail(self, text: str) -> None:
        """Make every later pull raise NonFiniteError."""
        self._held.sequence += 1
        self._held.failure = self._held.failure or text

    # Answers; None if the caller has to wait.

    def pull(self, step: int, have: int | None) -> Pulled | None:
        """The parameters to compute a microbatch of `step` with, if it may begin. `have` is the version that the worker has."""
        held, mode = self._held, self._settings.parameter_server
        if held.failure:
            raise NonFiniteError(held.failure)
        if held.halt_at is not None and step >= held.halt_at:
            return Pulled(is_halted=True)
        if self._sync and step > held.applied:
            return None
        if mode.mode == "bounded" and step > min(held.next_steps) + (mode.staleness or 0):
            return None
        return self.current(have)

    def current(self, have: int | None) -> Pulled:
        if have == self.version:
            return Pulled(version=self.version)
        buffers = [values.numpy() for values in self._buffers.clones()]
        return Pulled(version=self.version, values=self._held.values.numpy().copy(), buffers=buffers)

    def ready(self, step: int) -> Ready | None:
        """What the norm of synchronous step `step` needs, once all its gradients are here, and until the next step's are."""
        if self._held.failure:
            raise NonFiniteError(self._held.failure)
        found = self._held.ready
        return found if found is not None and found.step == step else None

    def arrived(self, step: int) -> bool | None:
        """True once every shard is at `step`; False if microbatches may not begin."""
        held = self._held
        if held.failure:
            raise NonFiniteError(held.failure)
        if min(held.next_steps) >= step and (not self._sync or held.applied >= step):
            return True
        halted = held.halt_at is not None and min(held.next_steps) >= held.halt_at
        return False if halted and (not self._sync or held.applied >= (held.halt_at or 0)) else None

    def steps_after(self, number: int) -> list[StepSums]:
        return [sums for sums in self._held.steps if sums.number > number]

    def behind(self) -> list[int]:
        """The shards with the fewest updates."""
        least = min(self._held.next_steps)
        return [shard for shard, step in enumerate(self._held.next_steps) if step == least]

    # Parts of commands.

    def _apply(self, update: Push) -> None:
        """Take an optimizer step with one microbatch's mean gradient, which the worker has clipped."""
        used, sums, changes = self._split(torch.tensor(update.beside))
        loss, weight, rows, _, norm = sums.tolist()
        if update.gradient is not None:
            self._set_gradients(torch.tensor(update.gradient), used)
            self._take_step(min(self.version // self._shards, self._held.plan.total_steps - 1))
            self._move_buffers(changes)
        stale, before = float(self.version - update.version), self._held.sums
        self._held.sums = [
            *(have + more for have, more in zip(before, [max(norm, 0.0), float(norm >= 0), loss, weight, rows, stale], strict=False)),
            max(before[-1], stale),
        ]

    def _move_buffers(self, changes: Tensor) -> None:
        """Move buffers by a shard's part of the mean change. Integers move once the parts make a whole number."""
        if not len(changes):
            return
        self._held.carried = self._held.carried or [torch.zeros_like(changes)]
        (carried,) = self._held.carried
        carried += changes
        before = self._buffers.clones()
        whole = torch.cat([torch.full((values.numel(),), not values.is_floating_point()) for values in before])
        mean = torch.where(whole, (carried / self._shards).floor(), carried / self._shards)
        carried -= mean * self._shards
        self._buffers.move(before, mean)

    def _close(self, number: int) -> None:
        """End the current sums, which become those of step `number`."""
        held = self._held
        norms, measured, loss, weight, rows, stale, most = held.sums
        norm = norms / measured if measured else -1.0
        held.steps.append(StepSums(number, norm, loss, weight, rows, stale / self._shards, most))
        held.sums = [0.0] * SUMS_OF_STEP

    def _set_gradients(self, gradient: Tensor, used: Tensor) -> list[Tensor]:
        """Give every used piece its part of the gradient; the others have none, so that the optimizer skips them."""
        pieces = gradient.split([piece.size for piece in self._held.pieces])
        for parameter, piece, shards_using in zip(self._parameters, pieces, used.tolist(), strict=True):
            parameter.grad = piece if shards_using else None
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _take_step(self, number: int) -> None:
        plan = self._held.plan
        set_rate(self._optimizer, learning_rate(self._settings, number, plan.total_steps, plan.steps_per_epoch))
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _summed(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Gradient, flags of pieces, sums and changes of the step in progress, over all shards."""
        collected = [self._held.collected[shard] for shard in range(self._shards)]
        return summed([each.gradient for each in collected], len(self._held.values)), *self._split(
            summed([each.beside for each in collected])
        )

    def _ready(self, gradient: Tensor, used: Tensor, sums: Tensor, changes: Tensor) -> Ready:
        held = self._held
        needed = held.pieces if held.plan.needs_norm(held.applied) else []
        whole, split = norms(gradient, used, needed, held.plan.layouts)
        return Ready(held.applied, float(sums[1]), whole, split)

    def _split(self, beside: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        used, sums, changes = beside.split([len(self._parameters), SUMS, self._buffers.numel])
        return used, sums, changes


def _holding(buffers: list[Tensor]) -> nn.Module:
    module = nn.Module()
    for number, values in enumerate(buffers):
        module.register_buffer(f"buffer_{number}", values)
    return module

"""A parameter server without its network: a part of the parameters, its optimizer, and a watermark for every logical shard.

Commands change the state, and the same commands in the same order give the same state bit for bit: so a second server that is
sent them is a backup. An update is applied in the same command that notes it in the watermarks; sending it again changes nothing.

A part has its optimizer; and, on the first server, the model's buffers. The gradients of a synchronous step are summed over the shards in
the fixed tree, as strategy `exact` adds them.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.errors import NonFiniteError, TrainingError
from pipelines.strategies.parameter_server.messages import SUMS_OF_STEP, Contents, Layout, ParameterSlice, Pulled, Push, Ready, StepSums
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.train.buffers import ModelBuffers
from pipelines.train.learning_rate import learning_rate
from pipelines.train.optimizers import create_optimizer, mean_factor, rescale, set_rate
from pipelines.train.ordered_all_reduce import tree_sum

SUMS = 5
"""Entries of `Push.auxiliary` between the flags of slices and the changes of buffers."""


class Part:
    """Takes over the tensors of `contents`, and changes its `values` and `buffer_remainders` in place."""

    def __init__(self, contents: Contents) -> None:
        self._contents, self._plan = contents, contents.plan
        self._sizes = [entries.size for entries in contents.slices]
        self._parameters = [nn.Parameter(view) for view in contents.values.split(self._sizes)]
        self._optimizer = create_optimizer(self._plan.settings, self._parameters)
        for parameter, state in zip(self._parameters, contents.optimizer, strict=True):
            if state:
                self._optimizer.state[parameter] = state
        module = nn.Module()
        for number, values in enumerate(contents.buffers):
            module.register_buffer(f"buffer_{number}", values)
        self._buffers = ModelBuffers(module)

    @property
    def optimizer(self) -> list[dict[str, Tensor]]:
        """The live state of each slice."""
        return [dict(self._optimizer.state.get(parameter, {})) for parameter in self._parameters]

    @property
    def buffers(self) -> list[Tensor]:
        """Copies of the buffers."""
        return self._buffers.clones()

    def split(self, auxiliary: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split `Push.auxiliary`, or a sum of several, into flags of slices, sums, and changes of buffers."""
        used, sums, changes = auxiliary.split([len(self._parameters), SUMS, self._buffers.numel])
        return used, sums, changes

    def set_gradients(self, gradient: Tensor, used: Tensor) -> list[Tensor]:
        """Give every used slice its entries of the gradient. Unused slices have no gradient, so that the optimizer skips them."""
        for parameter, values, shards_using in zip(self._parameters, gradient.split(self._sizes), used.tolist(), strict=True):
            parameter.grad = values if shards_using else None
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def take_step(self, number: int) -> None:
        """Take an optimizer step at the rate of step `number`."""
        plan = self._plan
        set_rate(self._optimizer, learning_rate(plan.settings, number, plan.total_steps, plan.steps_per_epoch))
        self._optimizer.step()
        self._optimizer.zero_grad()

    def move_buffers(self, mean: Tensor) -> None:
        """Move buffers by the mean change of a step."""
        self._buffers.move(self._buffers.clones(), mean)

    def move_buffers_by_share(self, changes: Tensor) -> None:
        """Move buffers by a shard's part of the mean change. Integers move once the parts make a whole number."""
        if not len(changes):
            return
        shards = self._plan.settings.shards
        self._contents.buffer_remainders = self._contents.buffer_remainders or [torch.zeros_like(changes)]
        (remainders,) = self._contents.buffer_remainders
        remainders += changes
        before = self._buffers.clones()
        is_integer = torch.cat([torch.full((values.numel(),), not values.is_floating_point()) for values in before])
        mean = torch.where(is_integer, (remainders / shards).floor(), remainders / shards)
        remainders -= mean * shards
        self._buffers.move(before, mean)


def sum_over_shards(by_shard: Sequence[np.ndarray | None], size: int = 0) -> Tensor:
    """The sum over all shards of one array of each; None stands for `size` zeros."""

    def leaf(span: tuple[int, int]) -> Tensor | None:
        start, stop = span
        if stop - start > 1:
            return None
        values = by_shard[start]
        return torch.zeros(size) if values is None else torch.tensor(values)

    return tree_sum((0, len(by_shard)), leaf)


def parameter_norms(
    gradient: Tensor, used: Tensor, slices: Sequence[ParameterSlice], layouts: Sequence[Layout]
) -> tuple[dict[int, float], dict[int, tuple[int, np.ndarray]]]:
    """By parameter that some shard used: the norm of one that this server holds whole, start and gradient of a slice of a split one.

    The norm of a split parameter cannot be computed from those of its slices with the same rounding.
    """
    norms, split_gradients, start = {}, {}, 0
    for entries, shards_using in zip(slices, used.tolist(), strict=False):
        values = gradient[start : start + entries.size]
        start += entries.size
        shape, strides = layouts[entries.number]
        if shards_using and entries.size == prod(shape):
            norms[entries.number] = float(torch.linalg.vector_norm(values.clone().as_strided(shape, strides)))
        elif shards_using:
            split_gradients[entries.number] = (entries.start, values.numpy().copy())
    return norms, split_gradients


class Server:
    """Continues from `contents`, which it takes over."""

    def __init__(self, contents: Contents) -> None:
        self._contents, self._part = contents, Part(contents)
        self.run, self.watermarks = contents.run, contents.watermarks
        self._settings = contents.plan.settings
        self._shards, self._sync = self._settings.shards, contents.plan.is_sync
        self._step_sums: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        """The sums of a synchronous step that is ready; they can be computed again."""

    @property
    def sequence(self) -> int:
        return self._contents.sequence

    @property
    def version(self) -> int:
        """The number of optimizer steps or, unless synchronous, of updates that the parameters have had."""
        return self._contents.applied if self._sync else self.watermarks.applied

    def contents(self) -> Contents:
        """The live state, to be copied before the next command."""
        return replace(self._contents, optimizer=self._part.optimizer, buffers=self._part.buffers)

    # Commands.

    def push(self, update: Push) -> None:
        """Apply an update, or collect it for its step, and note it in the watermarks. An update that is in the watermarks changes nothing.

        Raises TrainingError, in mode `sync`, for an update that is ahead of the step in progress.
        """
        contents = self._contents
        if contents.watermarks.has(update.shard, update.step):
            return
        if self._sync and update.step != contents.applied:
            due = contents.watermarks.next_steps[update.shard]
            raise TrainingError(f"shard {update.shard} sent step {update.step}, but its next one is {due}: an update is missing")
        contents.sequence += 1
        if self._sync:
            contents.collected[update.shard] = update
            contents.watermarks.add(update.shard, update.step)
            if len(contents.collected) == self._shards:
                self._step_sums = self._sum_shards()
                gradient, used, sums, _ = self._step_sums
                needed = contents.slices if contents.plan.needs_norm(contents.applied) else []
                norms = parameter_norms(gradient, used, needed, contents.plan.layouts)
                contents.ready = Ready(contents.applied, float(sums[1]), *norms)
        else:
            self._apply(update)
            contents.watermarks.add(update.shard, update.step)
            if self.version % self._shards == 0:
                self._close(self.version // self._shards)

    def advance(self, step: int, norm: float) -> None:
        """Take synchronous step `step`, all of whose gradients must have arrived; `norm` is that of all parts (-1 if not needed)."""
        contents = self._contents
        if step < contents.applied:
            return
        assert step == contents.applied and len(contents.collected) == self._shards, "the caller waits until the step is ready"
        contents.sequence += 1
        gradient, used, sums, changes = self._step_sums or self._sum_shards()
        loss, weight, rows, shards_with_rows, _ = sums
        gradients = self._part.set_gradients(gradient, used)
        factor = mean_factor(self._settings.global_batch, weight)
        rescale(gradients, factor, torch.tensor(norm, dtype=torch.float64), self._settings.clip_norm)
        self._part.take_step(step)
        self._part.move_buffers(changes / shards_with_rows.clamp(min=1))
        contents.sums = [max(norm, 0.0), float(norm >= 0), float(loss), float(weight), float(rows), 0.0, 0.0]
        contents.collected, contents.applied, self._step_sums = {}, step + 1, None
        self._close(step + 1)

    def halt(self) -> None:
        """Let no further microbatch begin; but all may complete a synchronous step that has begun, or fill gaps before early updates."""
        if self._contents.halt_at is None:
            self._contents.sequence += 1
            self._contents.halt_at = self._contents.applied + 1 if self._sync else 0

    def resume(self, saved: int) -> None:
        """Let microbatches begin again, and forget the sums up to the step that a checkpoint has `saved`."""
        self._contents.sequence += 1
        self._contents.halt_at = None
        self._contents.steps = [sums for sums in self._contents.steps if sums.number > saved]

    def fail(self, text: str) -> None:
        """Make every later question raise NonFiniteError."""
        self._contents.sequence += 1
        self._contents.failure = self._contents.failure or text

    # Answers; None if the caller has to wait.

    def pull(self, step: int, have: int | None) -> Pulled | None:
        """The parameters to compute a microbatch of `step` with, if it may begin. `have` is the version that the worker has."""
        self.check()
        contents, mode = self._contents, self._settings.strategy_as(Settings)
        if self._sync and contents.halt_at is not None and step >= contents.halt_at:
            return Pulled(is_halted=True)
        if self._sync and step > contents.applied:
            return None
        if mode.mode == "bounded" and step > contents.watermarks.lowest + (mode.staleness or 0):
            return None
        return self.current(have)

    def current(self, have: int | None) -> Pulled:
        if have == self.version:
            return Pulled(version=self.version)
        buffers = [values.numpy() for values in self._part.buffers]
        return Pulled(version=self.version, values=self._contents.values.numpy().copy(), buffers=buffers)

    def ready(self, step: int) -> Ready | None:
        """The summed gradient of synchronous step `step`, as far as its norm needs it, from the arrival of all its gradients to that of
        the next step's."""
        self.check()
        ready = self._contents.ready
        return ready if ready is not None and ready.step == step else None

    def may_begin(self, step: int) -> bool | None:
        """True once synchronous step `step` may begin; False if the servers are halted before."""
        self.check()
        contents = self._contents
        if contents.applied >= step:
            return True
        return False if contents.halt_at is not None and contents.applied >= contents.halt_at else None

    def limits(self, end: int) -> list[int]:
        """The step at which each shard ends, unless synchronous: `end`, or as early as can be once the servers are halted."""
        self.check()
        return [end] * self._shards if self._contents.halt_at is None else self.watermarks.without_gaps()

    def steps_after(self, number: int) -> list[StepSums]:
        return [sums for sums in self._contents.steps if sums.number > number]

    def check(self) -> None:
        """Raise NonFiniteError once a worker has met a number that is not finite."""
        if self._contents.failure:
            raise NonFiniteError(self._contents.failure)

    # Parts of commands.

    def _apply(self, update: Push) -> None:
        """Take an optimizer step with one microbatch's mean gradient, which the worker has clipped."""
        used, sums, changes = self._part.split(torch.tensor(update.auxiliary))
        loss, weight, rows, _, norm = sums.tolist()
        if update.gradient is not None:
            self._part.set_gradients(torch.tensor(update.gradient), used)
            self._part.take_step(min(self.version // self._shards, self._contents.plan.total_steps - 1))
            self._part.move_buffers_by_share(changes)
        staleness, before = float(self.version - update.version), self._contents.sums
        self._contents.sums = [
            *(total + term for total, term in zip(before, [max(norm, 0.0), float(norm >= 0), loss, weight, rows, staleness], strict=False)),
            max(before[-1], staleness),
        ]

    def _close(self, number: int) -> None:
        """End the current sums, which become those of step `number`."""
        contents = self._contents
        norms, measured, loss, weight, rows, staleness, most_stale = contents.sums
        norm = norms / measured if measured else -1.0
        contents.steps.append(StepSums(number, norm, loss, weight, rows, staleness / self._shards, most_stale))
        contents.sums = [0.0] * SUMS_OF_STEP

    def _sum_shards(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Add up the gradients, flags of slices, sums and changes of the step in progress over all shards."""
        collected = [self._contents.collected[shard] for shard in range(self._shards)]
        gradient = sum_over_shards([update.gradient for update in collected], len(self._contents.values))
        return gradient, *self._part.split(sum_over_shards([update.auxiliary for update in collected]))

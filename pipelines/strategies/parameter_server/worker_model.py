"""A worker's model and optimizer state with strategy `parameter_server`, and what it exchanges with the servers.

It computes shards' gradients as `exact` does, with parameters from the servers. Between two epochs the worker holds what the servers hold,
in the form that `exact` gives it: so evaluation and checkpoints are those of `exact`, and a checkpoint does not depend on the number of
servers.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pipelines.config.train.train import Train
from pipelines.errors import NonFiniteError, TrainingError
from pipelines.strategies.parameter_server.messages import (
    SUMS_OF_STEP,
    Contents,
    Layout,
    ParameterSlice,
    Plan,
    Pulled,
    Push,
    Ready,
    divide_parameters,
)
from pipelines.strategies.parameter_server.settings import Settings
from pipelines.strategies.parameter_server.watermarks import Watermarks, incomplete
from pipelines.tasks.base import Batch, Task, row_count
from pipelines.train.exact.exact import Exact
from pipelines.train.optimizers import mean_factor, rescale
from pipelines.train.passes import seed
from pipelines.train.step_statistics import REMEDY
from pipelines.train.workers import WorkerContext


class WorkerModel(Exact):
    """The model of `exact`, whose parameters come from the servers, and whose updates go there."""

    def __init__(self, settings: Train, task: Task, build: Callable[[], nn.Module], context: WorkerContext) -> None:
        super().__init__(settings, task, build, context)
        self._trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self._parts = divide_parameters([parameter.numel() for parameter in self._trained], settings.strategy_as(Settings).servers)
        self._is_sync = settings.strategy_as(Settings).is_sync
        self._is_checked = False
        self.next_steps = [0] * settings.shards
        self._sums = [0.0] * SUMS_OF_STEP
        self._buffer_remainders = torch.zeros(self._buffers.numel, dtype=torch.float64)
        """Each shard's next step, the sums of an incomplete step, and the changes that integer buffers have not made yet: of the servers
        when they were last collected, or of a checkpoint."""

    @property
    def layouts(self) -> tuple[Layout, ...]:
        return tuple((tuple(parameter.shape), parameter.stride()) for parameter in self._trained)

    def updates(self, microbatch: Batch, shard: int, step: int, versions: Sequence[int], plan: Plan) -> list[Push]:
        """Compute each server's update for a shard's microbatch, by one pass from the present parameters and buffers, which do not change.

        In mode `sync` the gradient is divided by the expected weight of a global batch, as `exact` has it. Else it is that of the
        microbatch's mean loss, and clipped. Raises NonFiniteError if the loss or the gradient's norm is not finite.
        """
        gradients, sums, changes = self._compute_gradients(microbatch, shard, step)
        loss, weight, _, has_rows = sums.tolist()
        if not isfinite(loss):
            raise NonFiniteError(f"step {step + 1}: the loss is {loss}, from worker {self._context.rank} (shard {shard}): {REMEDY}")
        norm, used_gradients = -1.0, [gradient for gradient in gradients if gradient is not None]
        if used_gradients and not plan.is_sync:
            factor = mean_factor(self._settings.global_batch, torch.tensor(weight, dtype=torch.float64, device=self._context.device))
            own_norm = nn.utils.get_total_norm(used_gradients) * factor if plan.needs_norm(step) else factor.new_tensor(-1.0)
            rescale(used_gradients, factor, own_norm, self._settings.clip_norm)
            norm = float(own_norm)
        _check_norm(norm, step)
        flat = [None if grad is None else _flat(_like(parameter, grad)) for parameter, grad in zip(self._trained, gradients, strict=True)]
        pushes = []
        for number, (slices, version) in enumerate(zip(self._parts, versions, strict=True)):
            used = [float(flat[entries.number] is not None) for entries in slices]
            auxiliary = np.array([*used, *sums.tolist(), norm, *([] if number else changes.tolist())])
            pushes.append(Push(shard, step, version, _cut(slices, flat) if has_rows else None, auxiliary))
        return pushes

    def norm(self, answers: Sequence[Ready], plan: Plan) -> float:
        """The norm of a synchronous step's mean gradient over all parts, as `exact` computes it; -1 if it is not needed.

        Raises NonFiniteError if it is not finite.
        """
        if not plan.needs_norm(answers[0].step):
            return -1.0
        whole_norms = {number: value for answer in answers for number, value in answer.norms.items()}
        split = sorted((number, *gradient) for answer in answers for number, gradient in answer.split_gradients.items())
        norms = []
        for number, parameter in enumerate(self._trained):
            if number in whole_norms:
                norms.append(torch.tensor(whole_norms[number], dtype=torch.float32))
            elif slices := [torch.tensor(values) for split_number, _, values in split if split_number == number]:
                norms.append(torch.linalg.vector_norm(torch.cat(slices).as_strided(parameter.shape, parameter.stride())))
        total = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)
        factor = mean_factor(self._settings.global_batch, torch.tensor(answers[0].weight, dtype=torch.float64))
        norm = float(total * factor)
        _check_norm(norm, answers[0].step)
        return norm

    @torch.no_grad()
    def take(self, pulled: Sequence[Pulled]) -> None:
        """Replace parameters and buffers by those that the servers have sent."""
        for slices, answer in zip(self._parts, pulled, strict=True):
            if answer.values is not None:
                values = torch.tensor(answer.values).split([entries.size for entries in slices])
                for entries, part in zip(slices, values, strict=True):
                    _flat(self._trained[entries.number])[entries.span].copy_(part)
        if pulled[0].buffers:
            self._buffers.restore([torch.tensor(values) for values in pulled[0].buffers])

    @torch.no_grad()
    def collect(self, contents: Sequence[Contents]) -> None:
        """Take over everything that the servers hold: parameters, buffers, optimizer state, watermarks."""
        self.take([Pulled(values=part.values.numpy(), buffers=[values.numpy() for values in part.buffers]) for part in contents])
        states: dict[Tensor, dict[str, Tensor]] = self._update.optimizer.state
        for part in contents:
            for entries, state in zip(part.slices, part.optimizer, strict=True):
                parameter = self._trained[entries.number]
                for name, values in state.items():
                    initial = values.clone() if not values.dim() else torch.zeros_like(parameter)
                    target = states[parameter].setdefault(name, initial)
                    _flat(target)[entries.span].copy_(values) if values.dim() else target.copy_(values)
        if incomplete([part.watermarks for part in contents]):
            raise TrainingError("a parameter server lacks an update that another one has; the workers start again, and complete it")
        self.next_steps, self._sums = contents[0].watermarks.next_steps, contents[0].sums
        for remainders in contents[0].buffer_remainders:
            self._buffer_remainders.copy_(remainders)

    def contents(self, run: str, plan: Plan) -> list[Contents]:
        """The contents that each server begins with: this worker's parameters, optimizer state and watermarks."""
        flat = [_flat(parameter.detach()) for parameter in self._trained]
        states = [self._update.optimizer.state.get(parameter, {}) for parameter in self._trained]
        applied = min(self.next_steps) if plan.is_sync else 0
        return [
            Contents(
                run,
                plan,
                slices,
                torch.tensor(_cut(slices, flat)),
                [
                    # Of a scalar, such as the number of steps, each slice has its own.
                    {name: (_flat(v)[entries.span] if v.dim() else v).cpu().clone() for name, v in states[entries.number].items()}
                    for entries in slices
                ],
                Watermarks(list(self.next_steps)),
                [] if number else [values.cpu() for values in self._buffers.clones()],
                [] if number else [self._buffer_remainders.clone()],
                applied=applied,
                sums=list(self._sums),
            )
            for number, slices in enumerate(self._parts)
        ]

    def state_dict(self) -> dict[str, Any]:
        """The state of `exact`. Asynchronous shards, each at another step, add their watermarks, and the changes that integer buffers have
        still to make."""
        state = super().state_dict()
        if not self._is_sync:
            sums = torch.tensor(self._sums, dtype=torch.float64)
            state["servers"] = {"next_steps": torch.tensor(self.next_steps), "sums": sums}
            if self._buffers.numel:
                state["servers"]["carried"] = self._buffer_remainders
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if not self._is_sync:
            servers = state["servers"]
            self.next_steps, self._sums = servers["next_steps"].tolist(), servers["sums"].tolist()
            self._buffer_remainders.copy_(servers.get("carried", self._buffer_remainders))

    def _compute_gradients(self, microbatch: Batch, shard: int, step: int) -> tuple[list[Tensor | None], Tensor, Tensor]:
        """The gradient of each trained parameter, None if the pass did not use it; float64 of shape (4,): loss, weight, rows, 1 if
        there are rows; and the changes of buffers."""
        self.model.train()
        before = self._buffers.clones()
        if not self._is_checked and row_count(microbatch):
            self._try(microbatch)
            self._is_checked = True
        seed(self._context.device, self._settings.seed, step, shard)
        sums = self._pass(microbatch)
        changes = self._buffers.changes(before)
        self._buffers.restore(before)
        gradients = [parameter.grad for parameter in self._trained]
        for parameter in self._trained:
            parameter.grad = None
        return gradients, sums.cpu(), torch.cat(changes).cpu() if changes else torch.zeros(0, dtype=torch.float64)


def _check_norm(norm: float, step: int) -> None:
    if not isfinite(norm):
        raise NonFiniteError(f"step {step + 1}: the gradient norm is {norm}, although the loss is finite: {REMEDY}")


def _cut(slices: Sequence[ParameterSlice], flat: Sequence[Tensor | None]) -> np.ndarray:
    """The entries of a part, end to end; zeros for parameters without values."""
    parts = []
    for entries in slices:
        values = flat[entries.number]
        parts.append(torch.zeros(entries.size) if values is None else values[entries.span].cpu())
    return torch.cat(parts).numpy()


def _flat(values: Tensor) -> Tensor:
    """A view of a dense tensor in the order of its memory."""
    return values.as_strided((values.numel(),), (1,))


def _like(parameter: Tensor, values: Tensor) -> Tensor:
    """The values with the parameter's layout in memory."""
    return values if values.stride() == parameter.stride() else torch.empty_like(parameter).copy_(values)

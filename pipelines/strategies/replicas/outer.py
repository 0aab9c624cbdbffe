"""The outer step: where all replicas start again, after each has taken steps of its own.

`average`   the mean of the replicas: Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019.
`nesterov`  SGD with Nesterov momentum, whose gradient is the replicas' mean change, reversed: Douillard et al., "DiLoCo:
            Distributed Low-Communication Training of Language Models", 2023, algorithm 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import SGD

from pipelines.strategies.replicas.outer_settings import OuterStep
from pipelines.strategies.replicas.replica import ModelState


class Outer:
    """The model after the last outer step, and the outer optimizer; the same on all workers."""

    def __init__(self, settings: OuterStep, model: nn.Module) -> None:
        self.model_state = ModelState(model)
        # SGD with rate 1 adds the mean change: `average`.
        rate, momentum = (settings.outer_lr, settings.outer_momentum) if settings.outer == "nesterov" else (1.0, 0.0)
        self._optimizer = SGD(self.model_state.parameters, lr=rate, momentum=momentum, nesterov=momentum > 0)

    def step(self, deltas: Sequence[Tensor], changes: Tensor | None) -> None:
        """Step by the mean deltas of the replicas' parameters; their buffers are averaged. Arguments as of `ModelState.move`."""
        for parameter, delta in zip(self.model_state.parameters, deltas, strict=True):
            parameter.grad = delta.to(parameter.dtype).neg()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self.model_state.move_buffers(self.model_state, changes)

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model_state.model, self._optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        set_state_dict(self.model_state.model, self._optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

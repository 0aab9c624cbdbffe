"""An average of the weights over the steps of a run: `train.ema_decay`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """An exponential moving average of the trained parameters (Polyak and Juditsky 1992), which is evaluated in their place.

    After n steps the decay is at most (1 + n) / (10 + n), so that the initial weights are soon forgotten. Batch norm's statistics, which
    are averages already, stay those of the model.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._averages = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._steps = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters after a step."""
        self._steps += 1
        steps = int(self._steps)
        decay = min(self._decay, (1 + steps) / (10 + steps))
        get_ema_multi_avg_fn(decay)([*self._averages.values()], [*self._parameters.values()], None)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the parameters hold their averages meanwhile."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def state_dict(self) -> dict[str, Any]:
        return {"weights": dict(self._averages), "steps": self._steps}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._steps.copy_(state["steps"])
        for name, average in self._averages.items():
            average.copy_(state["weights"][name])

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, parameter in self._parameters.items():
            present = parameter.clone()
            parameter.copy_(self._averages[name])
            self._averages[name].copy_(present)

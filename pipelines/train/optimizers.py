"""Optimizers, and the average of the weights that they reach.

`muon` makes orthogonal changes of weight matrices, and has AdamW for all other parameters: K. Jordan et al. 2024, "Muon: an optimizer for
hidden layers in neural networks". The change of a matrix has the root mean square that AdamW's has, so both take the same rate and weight
decay (Liu et al. 2025, "Muon is scalable for LLM training").
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.train.dtensor import is_dtensor
from pipelines.train.passes import one_thread

MATRICES = "matrices"
"""Key of a group of parameters: whether they are the matrices of hidden layers."""


def hidden_matrices(model: nn.Module) -> set[Tensor]:
    """The weights of linear layers, except those of the last layer, of an embedding that shares them, and of an adaptive softmax.

    A weight that is computed from other parameters, as of a layer with adapters or a weight norm, is none. Raises ConfigError if none is
    trained.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    outputs = [module for module in model.modules() if isinstance(module, nn.Embedding | nn.AdaptiveLogSoftmaxWithLoss)]
    weights_of_outputs = {parameter for module in [*outputs, *linear[-1:]] for parameter in module.parameters()}
    # Not `layer.weight`, which may be computed from other parameters: no optimizer changes that.
    weights: list[Tensor] = [weight for layer in linear for name, weight in layer.named_parameters(recurse=False) if name == "weight"]
    matrices = {weight for weight in weights if weight.ndim == 2} - weights_of_outputs
    if not any(matrix.requires_grad for matrix in matrices):
        raise ConfigError(
            "train.optimizer is muon, which changes matrices of linear layers before the last, and the model trains none; set it to adamw"
        )
    return matrices


def create_optimizer(settings: Train, parameters: Sequence[nn.Parameter] | Sequence[dict[str, Any]]) -> Optimizer:
    """Create the optimizer that the config names, in its fused form: one kernel for all parameters, or for each group, on CPUs too."""
    rate, decay = settings.lr, settings.weight_decay
    if settings.optimizer == "muon":
        return Muon(cast(Sequence[dict[str, Any]], parameters), rate, decay)
    if settings.optimizer == "sgd":
        # torch has no fused form for those.
        fused = not any(isinstance(parameter, Tensor) and is_dtensor(parameter) for parameter in parameters)
        return SGD(parameters, lr=rate, momentum=settings.momentum, weight_decay=decay, fused=fused)
    kind = Adam if settings.optimizer == "adam" else AdamW
    return kind(parameters, lr=rate, weight_decay=decay, fused=True)


def reset_state(optimizer: Optimizer) -> None:
    """Set moments and step counts to zero, where every optimizer here begins."""
    for state in optimizer.state.values():
        for values in state.values():
            if isinstance(values, Tensor):
                values.zero_()


class Muon(Optimizer):
    """torch's Muon and AdamW as one optimizer, with one state."""

    def __init__(self, groups: Sequence[Mapping[str, Any]], rate: float, weight_decay: float) -> None:
        """Each group has its `params`, and whether they are MATRICES."""
        self._kinds: dict[bool, Optimizer] = {}
        for are_matrices in {bool(group[MATRICES]) for group in groups}:
            parameters = [parameter for group in groups if group[MATRICES] == are_matrices for parameter in group["params"]]
            self._kinds[are_matrices] = (
                torch.optim.Muon(parameters, lr=rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
                if are_matrices
                else AdamW(parameters, lr=rate, weight_decay=weight_decay, fused=True)
            )
        super().__init__([{**self._kinds[group[MATRICES]].defaults, **group} for group in groups], {"lr": rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step of each kind with its groups."""
        for are_matrices, optimizer in self._kinds.items():
            # Each time, since loading a checkpoint replaces both.
            optimizer.state = self.state
            optimizer.param_groups = [group for group in self.param_groups if group[MATRICES] == are_matrices]
            with one_thread() if are_matrices else nullcontext():
                optimizer.step()


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

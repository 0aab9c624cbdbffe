"""Optimizer `muon`: orthogonal changes of weight matrices, and AdamW for all other parameters.

K. Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks". The change of a matrix has the root mean square that
AdamW's has, so both take the same rate and weight decay (Liu et al. 2025, "Muon is scalable for LLM training").
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from pipelines.errors import ConfigError
from pipelines.train.threads import one_thread

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

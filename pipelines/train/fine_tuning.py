"""Which parameters are trained, and at which rate: `train.freeze`, `train.lr_factors` and `train.lora`.

Low-rank adaptation of linear layers: a layer's weight W is frozen, and W + alpha / rank · B A takes its place wherever the layer uses it; A
and B are trained (Hu et al. 2021, "LoRA: low-rank adaptation of large language models"). torch's parametrizations hold W, A and B, and
compute the sum in every pass. `model_without_adapters` gives the weights of the ordinary model, in which the sum stands in place of W:
computed by the same operations, so it is the very weight that passes use.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from pipelines.config.messages.words import name_list
from pipelines.config.train.train import Train
from pipelines.errors import ConfigError
from pipelines.runtime.compat.torch import BatchNorm
from pipelines.runtime.weights import model_weights
from pipelines.train.buffers import keep_statistics

_WEIGHT = "weight"


def freeze(settings: Train, model: nn.Module) -> None:
    """Freeze the parameters that `train.freeze` names: they get no gradient, and so no part in the exchange and in the optimizer's state.

    A batch norm whose parameters are all frozen keeps its running statistics; one without parameters, if a pattern matches the statistics'
    names. Raises ConfigError for a pattern that matches nothing, or if nothing is left to train.
    """
    if not settings.freeze:
        return
    parameters = dict(model.named_parameters())
    for pattern in settings.freeze:
        names = match_names(pattern, parameters, "train.freeze")
        for name in names:
            parameters[name].requires_grad_(False)
    if not settings.lora and not any(parameter.requires_grad for parameter in parameters.values()):
        patterns = ", ".join(settings.freeze)
        raise ConfigError(f"train.freeze is {patterns}, which leaves none of {len(parameters)} parameters to train; remove a pattern")
    for path, module in model.named_modules():
        if not isinstance(module, BatchNorm):
            continue
        if norm_parameters := list(module.parameters(recurse=False)):
            is_frozen = not any(parameter.requires_grad for parameter in norm_parameters)
        else:
            statistics = f"{path}.running_mean".lstrip(".")
            is_frozen = any(fnmatchcase(statistics, pattern) for pattern in settings.freeze)
        if is_frozen:
            keep_statistics(module)


def match_names(pattern: str, names: Iterable[str], setting: str, kind: str = "parameter") -> list[str]:
    """The names that match a pattern. Raises ConfigError, with names that are near, if none does."""
    candidates = list(names)
    if not (matches := [name for name in candidates if fnmatchcase(name, pattern)]):
        near = name_list(candidates, pattern) if candidates else "none"
        raise ConfigError(f"{setting}: {pattern} matches no {kind} of the model, which has {near}; write a name, or a pattern of names")
    return matches


class LowRankChange(nn.Module):
    """The parametrization of a weight of shape (outputs, inputs)."""

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.down = nn.Parameter(torch.empty((rank, weight.shape[1]), dtype=weight.dtype, device=weight.device))
        self.up = nn.Parameter(torch.zeros((weight.shape[0], rank), dtype=weight.dtype, device=weight.device))
        nn.init.kaiming_uniform_(self.down, a=sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        """The changed weight, in the precision of the weight whatever that of the pass is: the logged one is computed outside of a pass."""
        with torch.autocast(weight.device.type, enabled=False):
            return weight + self.scale * (self.up @ self.down)


def add_adapters(settings: Train, model: nn.Module) -> None:
    """Adapt the layers that `train.lora` names, and freeze their weights. All other parameters are trained or not as before.

    Raises ConfigError for a pattern that matches no linear layer, for a layer whose weight is another's as well, and for a rank that is no
    less than the sides of a weight.
    """
    if settings.lora is None:
        return
    rank, scale = settings.lora.rank, settings.lora.alpha / settings.lora.rank
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear) and name}
    names = dict.fromkeys(name for pattern in settings.lora.targets for name in match_names(pattern, layers, "train.lora", "linear layer"))
    for name in names:
        layer = layers[name]
        if rank >= min(layer.weight.shape):
            raise ConfigError(
                f"train.lora.rank is {rank}, and {name} has a weight of {tuple(layer.weight.shape)}, which has no higher rank; lower it, "
                "or remove the layer from train.lora.targets"
            )
        if sum(parameter is layer.weight for module in model.modules() for parameter in module.parameters(recurse=False)) > 1:
            raise ConfigError(f"train.lora: {name} shares its weight with another layer, which would not change; remove it from targets")
    for name in names:
        layer = layers[name]
        change = LowRankChange(layer.weight, rank, scale)
        layer.weight.requires_grad_(False)
        parametrize.register_parametrization(layer, _WEIGHT, change, unsafe=True)  # which spares a trial


@torch.no_grad()
def model_without_adapters(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the ordinary model by name, on the CPU: those of the model itself, if it has no adapters."""
    weights = model_weights(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and parametrize.is_parametrized(module, _WEIGHT):
            prefix = f"{name}.parametrizations.{_WEIGHT}."
            if isinstance(module.parametrizations[_WEIGHT][0], LowRankChange):  # type: ignore[index]
                weights = {key: value for key, value in weights.items() if not key.startswith(prefix)}
                weights[f"{name}.{_WEIGHT}"] = module.weight.detach().cpu().clone().contiguous()
    return weights

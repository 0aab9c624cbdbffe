"""The optimizers that a config can name."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from pipelines.config.train import Train


def create_optimizer(settings: Train, parameters: Sequence[nn.Parameter]) -> Optimizer:
    """Create the optimizer that the config names, in its fused form: one kernel for all parameters, on CPUs too."""
    rate, decay = settings.lr, settings.weight_decay
    if settings.optimizer == "sgd":
        fused = not any(isinstance(parameter, DTensor) for parameter in parameters)  # torch has no fused form for those
        return SGD(parameters, lr=rate, momentum=settings.momentum, weight_decay=decay, fused=fused)
    kind = Adam if settings.optimizer == "adam" else AdamW
    return kind(parameters, lr=rate, weight_decay=decay, fused=True)


def reset_state(optimizer: Optimizer) -> None:
    """Set moments and step counts to zero, where SGD, Adam and AdamW begin."""
    for state in optimizer.state.values():
        for values in state.values():
            if isinstance(values, Tensor):
                values.zero_()

"""The flags that workers attach to an optimizer step, and the step's result."""

from dataclasses import astuple, dataclass, fields

from torch import Tensor


@dataclass(frozen=True)
class Flags:
    """Flags of a worker at a step. The step's all-reduce also counts how many workers set each of them."""

    save: bool = False
    """The state should be saved; only rank 0 sets it."""
    stop: bool = False
    """The worker was asked to stop."""
    written: bool = False
    """The worker's part of the last save is written."""

    def numbers(self) -> list[float]:
        return [float(flag) for flag in astuple(self)]


FLAGS = len(fields(Flags))


@dataclass(frozen=True)
class StepResult:
    """A step's sums, over all workers unless stated otherwise: scalar tensors on the device, valid until the next step."""

    grad_norm: Tensor
    """The norm of the mean gradient before clipping; -1 if it was not computed."""
    own_loss_sum: Tensor
    """The part of `loss_sum` that this worker computed."""
    loss_sum: Tensor
    weight: Tensor
    """The divisor that turns the sum of losses into their mean."""
    rows: Tensor
    flags: Tensor
    """The number of workers that set each of `Flags`, in its order: shape (FLAGS,)."""

"""The flags that workers attach to an optimizer step, and the step's result."""

from dataclasses import astuple, dataclass, fields

from torch import Tensor


@dataclass(frozen=True)
class Flags:
    """Flags of a worker at a step. The step's result contains how many workers set each, without a message of its own."""

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
    """A step's sums over all workers where not said otherwise: tensors of no dimensions on the device, until the next step."""

    grad_norm: Tensor
    """Of the mean gradient, before clipping; -1 where nothing asked for it."""
    own_loss_sum: Tensor
    """This worker's."""
    loss_sum: Tensor
    weight: Tensor
    """The divisor that turns the sum of losses into their mean."""
    rows: Tensor
    flags: Tensor
    """The number of workers that set each of `Flags`, in its order: shape (FLAGS,)."""

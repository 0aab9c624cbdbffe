"""What an optimizer step is given beside rows, and what comes out of it."""

from dataclasses import astuple, dataclass, fields

from torch import Tensor


@dataclass(frozen=True)
class Flags:
    """What a worker says at a step. How many workers said it comes with the step's result, and costs no message of its own."""

    save: bool = False
    """The state should be saved; rank 0 alone says so."""
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
    """What the sum of losses is divided by to give their mean."""
    rows: Tensor
    flags: Tensor
    """How many workers said each of `Flags`, in its order: shape (FLAGS,)."""

"""The weights of one model among several of the same kind: a replica, their mean, or where they started."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipelines.train.buffers import ModelBuffers


class ModelState:
    """A model's trained parameters and its buffers. Other parameters are expected to be equal in all models."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.buffers = model, ModelBuffers(model)
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())

    @torch.no_grad()
    def deltas(self, start: "ModelState") -> list[Tensor]:
        """Each parameter's change since `start`."""
        return [parameter - before for parameter, before in zip(self.parameters, start.parameters, strict=True)]

    def changes(self, start: "ModelState") -> Tensor:
        """All buffers' changes since `start`: float64 of shape (buffers.numel,).

        Raises ConfigError if a pass has replaced a buffer instead of writing it.
        """
        self.buffers.check_in_place()
        return torch.cat(self.buffers.changes(start.buffers.clones()))

    @torch.no_grad()
    def move(self, start: "ModelState", deltas: Sequence[Tensor], changes: Tensor | None) -> None:
        """Go to `start` plus the mean deltas of parameters and changes of buffers. Integer buffers change by whole numbers."""
        for parameter, before, delta in zip(self.parameters, start.parameters, deltas, strict=True):
            torch.add(before, delta, out=parameter)
        self.move_buffers(start, changes)

    def move_buffers(self, start: "ModelState", changes: Tensor | None) -> None:
        """The part of `move` for buffers; there are no `changes` without buffers."""
        if changes is not None:
            self.buffers.move(start.buffers.clones(), self.buffers.round_integers(changes))

    @torch.no_grad()
    def copy(self, other: "ModelState") -> None:
        for parameter, values in zip(self.parameters, other.parameters, strict=True):
            parameter.copy_(values)
        self.buffers.restore(other.buffers.clones())

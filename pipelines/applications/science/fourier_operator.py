"""A Fourier neural operator: Li et al. 2021, "Fourier neural operator for parametric partial differential equations".

The transform is a multiplication by the matrix of its lowest modes, not an FFT. It has the same gradients on every device, it exports, and
all tensors are real, so that every precision, optimizer and strategy takes them.
"""

from collections.abc import Sequence
from math import pi, prod

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.tasks.data import Batch

Pair = tuple[Tensor, Tensor]
"""Real and imaginary parts."""


class FourierOperator(nn.Module):
    """Maps features on a grid, or numbers, to a function on the grid, shape (rows, *grid, outputs)."""

    def __init__(
        self,
        columns: Sequence[str],
        inputs: int,
        outputs: int,
        grid: tuple[int, ...],
        modes: int,
        width: int,
        layers: int,
        coordinates: bool,
    ) -> None:
        """`inputs` are the channels of all columns together."""
        super().__init__()
        self.columns, self.grid, self.coordinates = tuple(columns), grid, coordinates
        self.lift = nn.Linear(inputs + coordinates * len(grid), width)
        self.layers = nn.ModuleList([FourierLayer(width, grid, modes) for _ in range(layers)])
        self.widen = nn.Linear(width, 2 * width)
        self.project = nn.Linear(2 * width, outputs)

    def forward(self, batch: Batch) -> Tensor:
        hidden = self.lift(torch.cat(self._channels(batch), -1))
        for number, layer in enumerate(self.layers, 1):
            hidden = layer(hidden)
            if number < len(self.layers):
                hidden = functional.gelu(hidden)
        return self.project(functional.gelu(self.widen(hidden)))

    def _channels(self, batch: Batch) -> list[Tensor]:
        """All inputs, each of shape (rows, *grid, channels)."""
        channels = []
        for name in self.columns:
            values = batch[name].float()
            if values.dim() == 1:
                values = values.reshape(-1, *[1] * len(self.grid)).expand(-1, *self.grid)
            channels.append(values if values.dim() > len(self.grid) + 1 else values.unsqueeze(-1))
        if self.coordinates:
            like, axes = channels[0], range(len(self.grid))
            for axis, points in enumerate(self.grid):
                places = torch.arange(points, device=like.device, dtype=torch.float32) / points
                along = places.reshape([1, *(-1 if other == axis else 1 for other in axes), 1])
                channels.append(along.expand(like.shape[0], *self.grid, 1))
        return channels


class FourierLayer(nn.Module):
    """A linear map of the lowest modes, and another of the values at each point; both keep the shape (rows, *grid, width)."""

    def __init__(self, width: int, grid: tuple[int, ...], modes: int) -> None:
        super().__init__()
        self.grid, self.modes, self.width = grid, modes, width
        weights = modes * (2 * modes) ** (len(grid) - 1)
        self.real = nn.Parameter(torch.empty(weights, width, width))
        self.imaginary = nn.Parameter(torch.empty(weights, width, width))
        for part in (self.real, self.imaginary):
            nn.init.normal_(part, std=(2 * width) ** -0.5)
        self.pointwise = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        # Eight bits of a mode would be an error of a percent in every point.
        with torch.autocast(hidden.device.type, enabled=False):
            filtered = self._filter(hidden.float())
        return filtered + self.pointwise(hidden)

    def _filter(self, values: Tensor) -> Tensor:
        """Multiply the lowest modes by the weights, a complex matrix for each; other modes become 0."""
        last = len(self.grid)
        cosines, sines = self._matrices(last, values)
        # Along the last axis, modes that are not negative are enough, because values are real. Real and imaginary parts come from one
        # product: with 1,024 points on a CPU, a layer takes half the time of two products, and a third of that of torch's FFT.
        waves = torch.cat([cosines, -sines])
        real, imaginary = _along(waves / self.grid[-1], values, last).chunk(2, last)
        spectrum = (real, imaginary)
        for axis in range(1, last):
            cosines, sines = self._matrices(axis, values)
            spectrum = _transform((cosines / self.grid[axis - 1], -sines / self.grid[axis - 1]), spectrum, axis)
        spectrum = self._mix(spectrum)
        for axis in range(1, last):
            cosines, sines = self._matrices(axis, values)
            spectrum = _transform((cosines.T, sines.T), spectrum, axis)
        # The negative modes are the conjugates of the positive ones, so these count twice.
        count = 1 + (torch.arange(self.modes, device=values.device) > 0).to(values.dtype)
        return _along(waves.T * count.repeat(2), torch.cat(spectrum, last), last)

    def _mix(self, spectrum: Pair) -> Pair:
        """Multiply the values of each mode, shape (rows, *modes, width), by the matrix of that mode."""
        shape = spectrum[0].shape
        rows = torch.cat([part.reshape(shape[0], prod(shape[1:-1]), self.width) for part in spectrum], -1)
        # The product of complex numbers as one of real matrices, real parts before imaginary ones.
        weights, turned = self.real.to(rows.dtype), self.imaginary.to(rows.dtype)  # a model that is spread has them in bf16
        matrices = torch.cat([torch.cat([weights, turned], 2), torch.cat([-turned, weights], 2)], 1)
        real, imaginary = torch.bmm(rows.transpose(0, 1), matrices).transpose(0, 1).chunk(2, -1)
        return real.reshape(shape), imaginary.reshape(shape)

    def _matrices(self, axis: int, like: Tensor) -> Pair:
        """Cosines and sines of the modes at the points along an axis, each of shape (modes, points)."""
        points = self.grid[axis - 1]
        modes = torch.arange(0 if axis == len(self.grid) else -self.modes, self.modes, device=like.device)
        # Whole turns are taken off in integers: the cosine of a large angle has fewer digits.
        turns = torch.outer(modes, torch.arange(points, device=like.device)) % points
        angles = turns.double() * (2 * pi / points)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _transform(matrix: Pair, values: Pair, axis: int) -> Pair:
    """The product of a complex matrix (new, old) with one axis of complex values."""
    (real_matrix, imaginary_matrix), (real, imaginary) = matrix, values
    return (
        _along(real_matrix, real, axis) - _along(imaginary_matrix, imaginary, axis),
        _along(imaginary_matrix, real, axis) + _along(real_matrix, imaginary, axis),
    )


def _along(matrix: Tensor, values: Tensor, axis: int) -> Tensor:
    """The product of a matrix (new, old) with one axis of values, which is not their last one."""
    return torch.matmul(matrix, values.movedim(axis, -2)).movedim(-2, axis)

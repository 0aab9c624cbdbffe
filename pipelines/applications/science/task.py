"""The task `operator`: maps functions on a grid to a function on it, by a Fourier neural operator.

Li et al. 2021, "Fourier neural operator for parametric partial differential equations". Features and target are arrays of float32 with the
shape of the grid, or with one axis more for several functions; a feature may be a number, which is constant on the grid.
"""

from collections.abc import Sequence
from math import pi, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import MeanSquaredError, MetricCollection

from pipelines.applications.science.field_details import FieldDetails, MeanField, RepeatFeature
from pipelines.applications.science.settings import OperatorSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError, DatasetError
from pipelines.tasks.base import Data, Task
from pipelines.tasks.data import Batch
from pipelines.tasks.details import Details
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.trivial import TrivialPredictor


class Operator(Task):
    settings: Settings
    monitor = "relative_l2", "min"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the columns are not functions on one grid, or if it has too few points for the modes."""
        super().__init__(settings, data)
        self.target = data.target
        self.grid = self.target.shape[: self.settings.axes]
        axes = self.settings.axes
        for column in data.columns:
            is_function = column.shape[:axes] == self.grid and len(column.shape) in (axes, axes + 1)
            if column.cardinality or not (is_function or (column.role == "feature" and not column.shape)) or len(self.grid) < axes:
                columns_text = name_list([f"{column.name} {column.shape}" for column in data.columns])
                raise ConfigError(
                    f"task.kind is operator, which takes functions on one grid of {'1 axis' if axes == 1 else f'{axes} axes'}, and numbers "
                    f"as features, but got {columns_text}; give features and target one shape, or set task.axes"
                )
        if 2 * self.settings.modes > min(self.grid):
            raise ConfigError(
                f"task.modes is {self.settings.modes}, but {self.target.name} has {min(self.grid)} points along an axis; set it to "
                f"{min(self.grid) // 2} or less"
            )

    def model(self) -> nn.Module:
        settings, features = self.settings, self.data.features
        inputs = sum(self._channels(column) for column in features)
        return FourierOperator(
            [column.name for column in features],
            inputs,
            self._channels(self.target),
            self.grid,
            settings.modes,
            settings.width,
            settings.layers,
            settings.coordinates,
        )

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        assert isinstance(model, FourierOperator)
        return list(model.layers)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        true = batch[self.target.name]
        if true.device.type == "cpu":  # a GPU would have to be waited for; there the loss becomes infinite
            self._check_norms(true.flatten(1).norm(dim=1))
        losses = relative_errors(self._functions(model(batch).float()), true)
        return losses.sum(), losses.new_full((), len(losses))

    def metrics(self) -> MetricCollection:
        """`relative_l2` is the mean over rows of ‖prediction − truth‖ / ‖truth‖, and `mse` the mean square error, both in the units of the
        query. `loss` is the former as encoded."""
        return MetricCollection({"relative_l2": Loss(), "mse": MeanSquaredError(), "loss": Loss()}, compute_groups=False).set_dtype(
            torch.float64
        )

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        predicted, true = self._functions(output.detach().cpu().double()), batch[self.target.name].cpu().double()
        metrics["loss"].update(relative_errors(predicted, true))
        predicted, true = (torch.from_numpy(np.asarray(self.data.decode(values.numpy()))) for values in (predicted, true))
        self._check_norms(true.flatten(1).norm(dim=1))
        metrics["relative_l2"].update(relative_errors(predicted, true))
        metrics["mse"].update(predicted.reshape(-1), true.reshape(-1))

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        raw, decode = self.data.raw, self.data.decode
        unchanged = [
            RepeatFeature(column.name, column.shape, lambda values, name=column.name: raw(name, values), decode)  # type: ignore[misc]
            for column in self.data.features
            if column.shape == self.target.shape
        ]
        return [MeanField(self.target.name), *unchanged]

    def details(self) -> Details:
        return FieldDetails(self.settings, self.data, self.settings.axes)

    def prediction_form(self) -> dict[str, Any]:
        return {**self.data.form_to_decode("array"), "shape": list(self.target.shape)}

    def _functions(self, output: Tensor) -> Tensor:
        """The model's output in the target's shape, (rows, *shape)."""
        return output.reshape(len(output), *self.target.shape)

    def _channels(self, column: TensorColumn) -> int:
        return column.shape[-1] if len(column.shape) > self.settings.axes else 1

    def _check_norms(self, norms: Tensor) -> None:
        if not bool((norms > 0).all()):
            fitted = self.data.encoders.get(self.target.name)
            column = fitted.inputs[0] if fitted else self.target.name
            values = f"flatten({column})" if len(self.target.shape) > 1 else column
            raise DatasetError(
                f"a row of {self.target.name} is 0 at every point, or too near to it for float32, so it has no relative error; leave such "
                f"rows out by source.expect: {{not zero: 'exists({values}, value -> abs(value) > 1e-20)'}}"
            )


def relative_errors(predicted: Tensor, true: Tensor) -> Tensor:
    """‖prediction − truth‖ / ‖truth‖ of each row, shape (rows,), from functions of shape (rows, …)."""
    return (predicted - true).flatten(1).norm(dim=1) / true.flatten(1).norm(dim=1)


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

"""The task `operator`: maps functions on a grid to a function on it, by a Fourier neural operator.

Li et al. 2021, "Fourier neural operator for parametric partial differential equations". Features and target are arrays of float32 with
the shape of the grid, or with one axis more for several functions; a feature may be a number, which is constant on the grid.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MeanSquaredError, MetricCollection

from pipelines.applications.science.details import FieldDetails
from pipelines.applications.science.fourier_operator import FourierOperator
from pipelines.applications.science.mean_fields import MeanField, RepeatFeature
from pipelines.applications.science.settings import OperatorSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.counting import name_list
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError, DatasetError
from pipelines.tasks.base import Batch, Data, Task
from pipelines.tasks.details import Details
from pipelines.tasks.metrics.accumulation import Loss
from pipelines.tasks.metrics.table import METRICS
from pipelines.tasks.trivial import TrivialPredictor


class Operator(Task):
    settings: Settings
    monitor = METRICS["relative_l2"].monitor

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if the columns are not functions on one grid, or if it has too few points for the modes."""
        super().__init__(settings, data)
        self.target = data.target
        self.grid = self.target.shape[: self.settings.axes]
        self._check_columns()
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

    def _check_columns(self) -> None:
        axes = self.settings.axes
        for column in self.data.columns:
            is_function = column.shape[:axes] == self.grid and len(column.shape) in (axes, axes + 1)
            if column.cardinality or not (is_function or (column.role == "feature" and not column.shape)) or len(self.grid) < axes:
                columns_text = name_list([f"{column.name} {column.shape}" for column in self.data.columns])
                raise ConfigError(
                    f"task.kind is operator, which takes functions on one grid of {'1 axis' if axes == 1 else f'{axes} axes'}, and numbers "
                    f"as features, but got {columns_text}; give features and target one shape, or set task.axes"
                )

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

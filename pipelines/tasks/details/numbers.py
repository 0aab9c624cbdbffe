"""Details of a quantity: a sample of predictions with their truth, in the units of the query."""

from typing import Any

import numpy as np
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details
from pipelines.tasks.targets.base import Target


class QuantityDetails(Details):
    kind = "quantity"

    def __init__(self, settings: TaskSettings, data: Data, target: Target) -> None:
        super().__init__(settings, data)
        self._target = target

    def update(self, output: Tensor, batch: Batch) -> None:
        output, target = output.double(), batch[self.data.target.name].cpu()
        losses = self._target.losses(output, target).numpy()
        predicted, true = self._target.quantities(output).numpy(), self._target.raw(target).numpy()
        error = predicted - true
        self.sums.add("rows", np.array(len(true)))
        self.slices.update(batch, {"loss": losses, "error": error, "absolute": np.abs(error), "squared": error**2})
        self._offer(self.outcomes, batch, {"mse": error**2, "mae": np.abs(error), "loss": losses})
        self._offer(self.sample, batch, {"true": true, "predicted": predicted})
        self._offer_worst(losses, batch, {"true": true, "predicted": predicted})

    def tables(self) -> dict[str, Columns]:
        sample = self.sample.columns
        return {"sample": {"row": self.sample.rows.tolist(), **{name: values.tolist() for name, values in sample.items()}}}

    def summary(self) -> dict[str, Any]:
        return {"target": self.data.target.name, "rows": int(self.sums.arrays.get("rows", 0))}

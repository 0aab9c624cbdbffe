"""Details of a language model: how the likelihood differs between windows, and the most surprising ones as text."""

from math import log
from typing import Any

import numpy as np
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details
from pipelines.tasks.details.parts import SelectedRows

WORST_WINDOWS = 8


class WindowDetails(Details):
    kind = "windows"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        super().__init__(settings, data)
        self.worst = SelectedRows(WORST_WINDOWS)

    def update(self, output: Tensor, batch: Batch) -> None:
        nats, tokens, bytes_ = output.double().numpy().T
        with np.errstate(divide="ignore", invalid="ignore"):
            per_token, bits = nats / tokens, nats / log(2) / bytes_
        self.sums.add("rows", np.array(len(nats)))
        self._offer_outcomes(batch, {"nats": nats, "tokens": tokens, "bytes": bytes_})
        self._offer_sample(batch, {"nats_per_token": per_token, "bits_per_byte": bits})
        self._offer_worst(np.where(tokens > 0, per_token, 0.0), batch, {"bits_per_byte": bits})

    def tables(self) -> dict[str, Columns]:
        return {"sample": {"row": self.sample.rows.tolist(), **{name: values.tolist() for name, values in self.sample.columns.items()}}}

    def summary(self) -> dict[str, Any]:
        return {"rows": int(self.sums.arrays.get("rows", 0))}

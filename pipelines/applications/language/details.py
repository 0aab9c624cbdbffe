"""Details of a language model: how the likelihood differs between windows, and the most surprising ones as text."""

from math import log
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details
from pipelines.tasks.details.parts import SelectedRows

Figures = TypeVar("Figures", Tensor, np.ndarray)


def extent_figure(data: Data, nats: Figures, extent: Figures) -> dict[str, Figures]:
    """The figure that windows have besides their nats: how many words are unknown or, if tokens are the text, its bits per byte."""
    return {"unknown": extent} if data.has_words else {"bits_per_byte": nats / log(2) / extent}


WORST_WINDOWS = 8


class WindowDetails(Details):
    kind = "windows"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        super().__init__(settings, data)
        self.worst = SelectedRows(WORST_WINDOWS)

    def update(self, output: Tensor, batch: Batch) -> None:
        nats, tokens, extent = output.double().numpy().T
        with np.errstate(divide="ignore", invalid="ignore"):
            per_token, figure = nats / tokens, extent_figure(self.data, nats, extent)
        self.sums.add("rows", np.array(len(nats)))
        self._offer(self.outcomes, batch, {"nats": nats, "tokens": tokens, "unknown" if self.data.has_words else "bytes": extent})
        self._offer(self.sample, batch, {"nats_per_token": per_token, **figure})
        self._offer_worst(np.where(tokens > 0, per_token, 0.0), batch, figure)

    def tables(self) -> dict[str, Columns]:
        return {"sample": {"row": self.sample.rows.tolist(), **{name: values.tolist() for name, values in self.sample.columns.items()}}}

    def summary(self) -> dict[str, Any]:
        return {"rows": int(self.sums.arrays.get("rows", 0))}

"""Details of outputs that are numbers.

Of a quantity: a sample of predictions with their truth, in the units of the query. Of a language model: how the likelihood differs between
windows, and the most surprising ones as text. Of the next item: at which rank the right one is among all items.
"""

from collections.abc import Callable, Mapping
from math import log
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.data.versions.schema import FIRST
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details
from pipelines.tasks.details.parts import SelectedRows
from pipelines.tasks.targets.base import Target

Figures = TypeVar("Figures", Tensor, np.ndarray)


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


MOST_RANKS = 1_000
"""Ranks that are counted one by one; the last count is of all beyond."""


class RankingDetails(Details):
    """Ranks among all items of the vocabulary, unlike the metrics, which rank among some negative samples: these need no draws. Only the
    outcomes of rows, for the comparison of two models, are those of the metrics."""

    kind = "ranking"

    def __init__(self, settings: TaskSettings, data: Data, row_outcomes: Callable[[Tensor, Batch], Mapping[str, np.ndarray]]) -> None:
        """`row_outcomes` gives what the metrics are means of, by row, for an output and its batch."""
        super().__init__(settings, data)
        self._row_outcomes = row_outcomes
        self._items = (data.target.cardinality or FIRST) - FIRST

    def update(self, output: Tensor, batch: Batch) -> None:
        scores, truth = output[:, FIRST:].float(), batch[self.data.target.name][:, -1].cpu().long() - FIRST
        is_known = truth >= 0
        true_scores = scores.gather(1, truth.clamp(min=0)[:, None])
        ranks = (~(scores <= true_scores)).sum(1).where(is_known, self._items).numpy()
        self.sums.add("ranks", np.bincount(np.minimum(ranks, MOST_RANKS), minlength=MOST_RANKS + 1))
        hit = (ranks < 10).astype(np.float64)
        self.slices.update(batch, {"hit": hit, "rank": ranks.astype(np.float64)})
        self._offer(self.outcomes, batch, self._row_outcomes(output, batch))
        names = self.data.raw(self.data.target.name, truth.numpy() + FIRST)
        best = self.data.raw(self.data.target.name, scores.argmax(1).numpy() + FIRST)
        self._offer_worst(ranks.astype(np.float64), batch, {"true": names, "predicted": best})

    def tables(self) -> dict[str, Columns]:
        if "ranks" not in self.sums.arrays:
            return {}
        counts = self.sums.arrays["ranks"]
        filled = np.flatnonzero(counts)
        return {"ranks": {"rank": (filled + 1).tolist(), "rows": counts[filled].tolist()}}

    def summary(self) -> dict[str, Any]:
        rows = int(self.sums.arrays["ranks"].sum()) if self.sums.arrays else 0
        return {"target": self.data.target.name, "rows": rows, "items": self._items, "ranks_counted": MOST_RANKS}

"""Details of the next item: at which rank the right one is among all items."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.data.versions.schema import FIRST
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details

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

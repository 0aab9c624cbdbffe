"""The task `next_item`: predicts the next item of a sequence by self-attention (SASRec, Kang and McAuley 2018).

A training row is a sequence and the same sequence shifted by one; the loss covers every position. In evaluation, only the last position
counts: its item is ranked among negative samples that are drawn for the row, and by the details among all items.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchmetrics import Metric, MetricCollection

from pipelines.applications.recommendation.settings import NextItemSettings as Settings
from pipelines.config import TaskSettings
from pipelines.config.messages.words import name_list
from pipelines.data.versions.schema import FIRST, FREE, ROW_KEYS, TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.augmentation import content_keys, random_integers
from pipelines.tasks.base import Task
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details
from pipelines.tasks.metrics.accumulation import NO_ITEM, Loss, RankScore
from pipelines.tasks.trivial import Frequencies, TrivialPredictor

TOP = 10
SHARES = (0.5, 0.875)
"""Where the rows of a batch, sorted by length, are split into groups."""
MOST_RANKS = 1_000
"""Ranks that are counted one by one; the last count is of all beyond."""


class NextItem(Task):
    settings: Settings
    draws = True
    monitor = f"ndcg_{TOP}", "max"

    def __init__(self, settings: TaskSettings, data: Data) -> None:
        """Raises ConfigError if feature and target are not two sequences with the same length and vocabulary."""
        super().__init__(settings, data)
        columns = [*data.features, data.target]
        kinds = {(column.shape, column.cardinality) for column in columns}
        if len(columns) != 2 or len(kinds) != 1 or len(columns[0].shape) != 1 or columns[0].cardinality is None:
            columns_text = name_list([f"{column.name} {column.shape} of {column.cardinality}" for column in columns])
            raise ConfigError(
                f"task.kind is next_item, which takes one sequence as feature and one as target, with the same length and "
                f"vocabulary, {{encoder: sequence, keep: last, vocabulary_of: [both columns]}}, but got {columns_text}"
            )
        encoders = [data.encoders[column.name] for column in columns if column.name in data.encoders]
        keeps = {encoder.feature["keep"] for encoder in encoders}
        vocabularies = {tuple(encoder.state["words"]) for encoder in encoders}
        if keeps - {"last"} or len(vocabularies) > 1:
            raise ConfigError(
                f"task.kind is next_item, whose sequences keep {' and '.join(sorted(keeps))} and have {len(vocabularies)} vocabularies; "
                "set `keep: last` and `vocabulary_of: [both columns]` for both"
            )
        self.history = data.features[0]
        self.items = (self.history.cardinality or 0) - FIRST

    def model(self) -> nn.Module:
        return SelfAttention(self.history, self.settings)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Softmax over the item at each position and the negative samples, which all positions of a row share.

        On a CPU, rows of similar length are computed together, without positions that are padding in all of them. Since most rows
        are short, this takes a third of the time. On a GPU, reading the lengths would force a synchronisation.
        """
        history = batch[self.history.name]
        if history.device.type != "cpu":
            return self._loss(cast(SelfAttention, model), batch)
        lengths = torch.maximum((history != FREE).sum(1), (batch[self.data.target.name] != FREE).sum(1))
        by_length = lengths.argsort(stable=True)
        losses, counts = [], []
        for rows in by_length.tensor_split([int(share * len(lengths)) for share in SHARES]):
            longest = max(int(lengths[rows].max()), 1) if len(rows) else 1
            similar = {name: batch[name][rows, -longest:] for name in (self.history.name, self.data.target.name)}
            loss, count = self._loss(cast(SelfAttention, model), {**similar, ROW_KEYS: batch[ROW_KEYS][rows]})
            losses.append(loss)
            counts.append(count)
        return torch.stack(losses).sum(), torch.stack(counts).sum()

    def _loss(self, model: "SelfAttention", batch: Batch) -> tuple[Tensor, Tensor]:
        target = batch[self.data.target.name].long()
        samples = FIRST + random_integers(batch[ROW_KEYS], self.settings.negatives, self.items)
        states = model(batch)
        negative = (states @ model.items(samples).transpose(1, 2)).float()
        negative = negative.masked_fill(samples[:, None, :] == target[:, :, None], -torch.inf)
        positive = (states * model.items(target)).sum(-1, keepdim=True).float()
        losses = torch.cat([positive, negative], -1).logsumexp(-1) - positive[..., 0]
        is_counted = target >= FIRST
        return torch.where(is_counted, losses, 0).sum(), is_counted.sum().to(losses.dtype)

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        return list(cast(SelfAttention, model).blocks)

    def metrics(self) -> MetricCollection:
        means: dict[str, Metric | MetricCollection] = {f"hit_rate_{TOP}": RankScore(), f"ndcg_{TOP}": RankScore(), "loss": Loss(NO_ITEM)}
        return MetricCollection(means, compute_groups=False).set_dtype(torch.float64)

    def update(self, metrics: MetricCollection, output: Tensor, batch: Batch) -> None:
        """`loss` is the cross entropy over all items, for targets in the vocabulary. Other targets count as not found."""
        gains, losses, is_known = self._row_scores(output, batch)
        for name, values in gains.items():
            metrics[name].update(values, is_known)
        metrics["loss"].update(losses[is_known])

    def _row_scores(self, output: Tensor, batch: Batch) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """How well the item of each row was found, by the metric that is the mean; its loss; and whether it is in the vocabulary, without
        which the loss is 0. All have shape (rows,)."""
        scores, history, target = output.detach().cpu(), batch[self.history.name].cpu(), batch[self.data.target.name].cpu()
        truth = target[:, -1:].long()
        rank = self._rank(scores, history, truth)
        is_known = truth[:, 0] >= FIRST
        gains = torch.where(rank < TOP, 1 / torch.log2(rank.double() + 2), 0.0)
        losses = torch.zeros(len(rank), dtype=torch.float64)
        losses[is_known] = functional.cross_entropy(scores[is_known, FIRST:], truth[is_known, 0] - FIRST, reduction="none").double()
        return {f"hit_rate_{TOP}": (rank < TOP).double(), f"ndcg_{TOP}": gains}, losses, is_known

    def trivial_predictors(self) -> Sequence[TrivialPredictor]:
        """The score of an item is how often it comes next in training."""
        return [Frequencies("most popular", self.data.target.name, self.items + FIRST, FIRST)]

    def details(self) -> Details:
        def outcomes(output: Tensor, batch: Batch) -> dict[str, np.ndarray]:
            gains, losses, is_known = self._row_scores(output, batch)
            return {name: values.numpy() for name, values in {**gains, "cross_entropy": losses, "known": is_known.double()}.items()}

        return RankingDetails(self.settings, self.data, outcomes)

    def prediction_form(self) -> dict[str, Any]:
        form = self.data.form_to_decode("pipelines.applications.recommendation.answers:top_items")
        return {**form, "count": min(TOP, self.items)}

    def _rank(self, scores: Tensor, history: Tensor, truth: Tensor) -> Tensor:
        """Number of negative samples of each row that score at least as high as its item, shape (rows,).

        Samples are a function of the content of the row and exclude the item and its history.
        """
        count = self.settings.evaluation_negatives
        samples = FIRST + random_integers(content_keys(history, truth), 2 * count, self.items)
        row_items = torch.cat([history, truth], dim=1)
        is_excluded = torch.zeros_like(samples, dtype=torch.bool)
        for item in row_items.unbind(1):  # one at a time, to save memory
            is_excluded |= samples == item[:, None]
        first = is_excluded.to(torch.uint8).argsort(dim=1, stable=True)[:, :count]
        compared = scores.gather(1, samples.gather(1, first)).masked_fill(is_excluded.gather(1, first), -torch.inf)
        rank = (~(compared < scores.gather(1, truth))).sum(1)  # an item with a score of NaN ranks last
        return torch.where(truth[:, 0] >= FIRST, rank, max(count, TOP))


class SelfAttention(nn.Module):
    """Embeds items and positions, and applies blocks of causal attention, which give a state for every position."""

    def __init__(self, history: TensorColumn, settings: Settings) -> None:
        super().__init__()
        self.column = history.name
        self.items = nn.Embedding(history.cardinality or 0, settings.width, padding_idx=FREE)
        self.places = nn.Parameter(torch.empty(history.shape[0], settings.width))
        with torch.no_grad():
            self.items.weight.normal_(std=settings.width**-0.5)[0] = 0
            self.places.normal_(std=settings.width**-0.5)
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.ModuleList([TransformerBlock(settings) for _ in range(settings.blocks)])
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, batch: Batch) -> Tensor:
        """In training, the state of each position, shape (rows, positions, width); else the score of each item as the next one,
        shape (rows, items).

        A shorter history uses the last positions.
        """
        history = batch[self.column]
        filled = (history != FREE).unsqueeze(-1)
        states = self.dropout(self.items(history) * self.items.embedding_dim**0.5 + self.places[-history.shape[1] :]) * filled
        # A position attends to filled positions up to itself, and always to itself: attention to nothing would be NaN.
        length = history.shape[1]
        attention_mask = torch.ones(length, length, dtype=torch.bool, device=history.device).tril() & filled.transpose(1, 2)
        attention_mask = (attention_mask | torch.eye(length, dtype=torch.bool, device=history.device)).unsqueeze(1)
        for block in self.blocks:
            states = block(states, attention_mask) * filled
        states = self.norm(states)
        return states if self.training else states[:, -1] @ self.items.weight.T


class TransformerBlock(nn.Module):
    """Attention and a position-wise perceptron, each with pre-norm and a residual connection."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.heads = settings.heads
        self.attention_norm, self.hidden_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projection, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(settings.dropout), nn.Linear(width, width), nn.Dropout(settings.dropout)
        )
        self.dropout = settings.dropout

    def forward(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        """`states` has shape (rows, length, width); `attention_mask` broadcasts to (rows, heads, length, length)."""
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.projection(self.attention_norm(states)).chunk(3, dim=2)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, attention_mask, self.dropout if self.training else 0.0)
        states = states + self.mix(attended.transpose(1, 2).flatten(2))
        return states + self.hidden(self.hidden_norm(states))


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

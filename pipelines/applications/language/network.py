"""Networks of a language model: a transformer, LSTM layers, and the embedding and the head at both ends, over a vocabulary; and what of
windows of tokens they predict.

A window has one token more than it predicts. Token 0 ends a document; a 0 after a 0 is padding and is not predicted.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.data.versions.schema import END
from pipelines.tasks.base import Batch
from pipelines.tasks.data import Constant
from pipelines.tasks.linear_cross_entropy import Head, linear_cross_entropy
from pipelines.tasks.model_parallel import Tokens
from pipelines.tasks.trivial import Frequencies


class AdaptiveSoftmax(nn.AdaptiveLogSoftmaxWithLoss):
    """An adaptive softmax over tokens that are numbered by descending frequency. A cluster's vectors have a quarter of the width of those
    of the cluster before it.

    torch's own `forward` leaves out a cluster of which a batch has no token, so that its weights have no gradient: workers that sum
    gradients would wait for each other.
    """

    def nats(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The negative log-likelihood of tokens, float32 of shape (tokens,); `hidden` has the shape (tokens, width)."""
        if torch.compiler.is_exporting():  # which cannot say how many tokens are in a cluster
            return -self.log_prob(hidden).gather(1, targets[:, None])[:, 0]
        numbers = targets.clone()
        for cluster in range(self.n_clusters):
            numbers[self._is_in(cluster, targets)] = self.shortlist_size + cluster
        nats = functional.cross_entropy(self.head(hidden).float(), numbers, reduction="none")
        for cluster, layers in enumerate(self.tail):
            places = self._is_in(cluster, targets).nonzero()[:, 0]
            numbers_in_cluster = targets[places] - self.cutoffs[cluster]
            inside = functional.cross_entropy(layers(hidden[places]).float(), numbers_in_cluster, reduction="none")
            nats = nats.index_add(0, places, inside)
        return nats

    def log_prob(self, hidden: Tensor) -> Tensor:
        """The logarithms of the probabilities of all tokens, float32 of shape (…, vocabulary)."""
        head = self.head(hidden).float().log_softmax(-1)
        parts = [head[..., : self.shortlist_size]]
        for cluster, layers in enumerate(self.tail):
            number = self.shortlist_size + cluster
            parts.append(layers(hidden).float().log_softmax(-1) + head[..., number : number + 1])
        return torch.cat(parts, dim=-1)

    def vectors(self, tokens: Tensor) -> Tensor:
        """The vectors of tokens, with the weights of the softmax: shape (…, width)."""
        last = self.shortlist_size - 1
        vectors = functional.embedding(tokens.clamp(max=last), self.head.weight) * (tokens <= last).unsqueeze(-1)
        for cluster, layers in enumerate(self.tail):
            low, high = self.cutoffs[cluster], self.cutoffs[cluster + 1] - 1
            narrowing, words = [layer for layer in layers.children() if isinstance(layer, nn.Linear)]
            narrow = functional.embedding(tokens.clamp(low, high) - low, words.weight)
            vectors = vectors + narrow @ narrowing.weight * self._is_in(cluster, tokens).unsqueeze(-1)
        return vectors

    def _is_in(self, cluster: int, tokens: Tensor) -> Tensor:
        return (tokens >= self.cutoffs[cluster]) & (tokens < self.cutoffs[cluster + 1])


class TokenNetwork(nn.Module):
    """Base class of networks from token numbers, shape (rows, tokens), to logits, shape (rows, tokens, vocabulary)."""

    context: int
    """The maximum number of tokens."""
    embedding: nn.Embedding | None
    """None if the head has the vectors of tokens."""
    head: Head | AdaptiveSoftmax | None
    """None if the embedding is the head's weight."""
    chunk: int
    """Number of tokens whose logits exist at a time, 0 for all."""

    @abstractmethod
    def hidden(self, tokens: Tensor) -> Tensor:
        """The input of the head, shape (rows, tokens, width)."""

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits(self.hidden(tokens))

    def vectors(self, tokens: Tensor) -> Tensor:
        if self.embedding is not None:
            return self.embedding(tokens)
        assert isinstance(self.head, AdaptiveSoftmax)
        return self.head.vectors(tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits; of an adaptive softmax, the logarithms of probabilities."""
        if isinstance(self.head, AdaptiveSoftmax):
            return self.head.log_prob(hidden)
        if self.head is not None:
            return self.head(hidden)
        assert self.embedding is not None
        return functional.linear(hidden, self.embedding.weight)

    def nats(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The negative log-likelihood of tokens, float32 of shape (tokens,); `hidden` has the shape (tokens, width)."""
        if isinstance(self.head, AdaptiveSoftmax):
            return self.head.nats(hidden, targets)
        if self.head is not None:
            return cast(Tensor, self.head(hidden, targets))
        assert self.embedding is not None
        return linear_cross_entropy(hidden, self.embedding.weight, targets, chunk=self.chunk)


@dataclass(frozen=True)
class TokenVocabulary:
    """The tokens of a network, and which weights they share."""

    size: int
    """Number of tokens."""
    tied: bool = False
    cutoffs: tuple[int, ...] = ()
    chunk: int = 0
    """Number of tokens whose logits exist at a time, 0 for all."""

    def embedding(self, width: int) -> nn.Embedding | None:
        """A new first layer of a `TokenNetwork`."""
        return None if self.tied and self.cutoffs else nn.Embedding(self.size, width)

    def head(self, width: int, bias: bool) -> Head | AdaptiveSoftmax | None:
        """A new last layer of a `TokenNetwork`."""
        if self.cutoffs:
            return AdaptiveSoftmax(width, self.size, list(self.cutoffs), head_bias=bias)
        return None if self.tied else Head(width, self.size, bias, self.chunk)


ROTARY_BASE = 10_000.0


class GPT(TokenNetwork):
    def __init__(self, vocabulary: TokenVocabulary, context: int, layers: int, heads: int, width: int, dropout: float) -> None:
        """`context` is the maximum number of tokens; `width / heads` must be an even integer."""
        super().__init__()
        self.context = context
        self.tokens = Tokens()
        self.pairs = width // heads // 2
        self.embedding = vocabulary.embedding(width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([TransformerBlock(width, heads, dropout) for _ in range(layers)])
        self.head, self.chunk = vocabulary.head(width, bias=False), vocabulary.chunk
        with torch.no_grad():  # deviation 0.02, and less for layers that write to the residual stream (Radford et al. 2019)
            for name, parameter in self.named_parameters():
                residual = name.endswith(("attention.outputs.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)

    def hidden(self, tokens: Tensor) -> Tensor:
        turns = self.turns(tokens.shape[1], tokens.device)
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden, *turns)
        return normalise(hidden)

    def embed(self, tokens: Tensor) -> Tensor:
        """The first block's input, shape (rows, tokens, width)."""
        return self.dropout(normalise(self.vectors(tokens)))

    def turns(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the rotary angles, shape (tokens, pairs). They are not buffers, because strategies average buffers."""
        rates = ROTARY_BASE ** -torch.linspace(0, 1, self.pairs + 1, device=device)[:-1]
        angles = torch.outer(self.tokens.positions(length, device), rates)
        return angles.cos(), angles.sin()


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.wide = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self.attention(normalise(hidden), cosines, sines))
        return hidden + self.dropout(self.narrow(functional.relu(self.wide(normalise(hidden))).square()))


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = Tokens()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.outputs = nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        # Query, key and value of a head lie together, so that workers can divide heads: `qkv` then returns only some of them.
        queries, keys, values = self.qkv(hidden).unflatten(2, (-1, 3, hidden.shape[2] // self.heads)).permute(3, 0, 2, 1, 4)
        queries, keys = (normalise(_rotate(part, cosines, sines)) for part in (queries, keys))
        return self.outputs(self.tokens.attend(queries, keys, values).transpose(1, 2).flatten(2))


def normalise(values: Tensor) -> Tensor:
    return functional.layer_norm(values, values.shape[-1:])


def _rotate(values: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate pairs of entries by an angle proportional to the position; values have shape (rows, heads, tokens, width)."""
    first, second = values.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, first * sines + second * cosines], dim=-1)


class LSTM(TokenNetwork):
    """LSTM layers, each as wide as the vectors of tokens."""

    def __init__(self, vocabulary: TokenVocabulary, context: int, layers: int, width: int, dropout: float) -> None:
        """`context` is the maximum number of tokens."""
        super().__init__()
        self.context = context
        self.embedding = vocabulary.embedding(width)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head, self.chunk = vocabulary.head(width, bias=True), vocabulary.chunk
        for module in filter(None, (self.embedding, self.head)):
            for parameter in module.parameters():
                if parameter.dim() > 1:
                    nn.init.uniform_(parameter, -0.1, 0.1)
                else:
                    nn.init.zeros_(parameter)

    def hidden(self, tokens: Tensor) -> Tensor:
        states, _ = self.recurrent(self.dropout(self.vectors(tokens)))
        return self.dropout(states)


NATS, TOKENS, EXTENT = range(3)
"""Output of the model for a window: negative log-likelihood in nats, number of predicted tokens, and their extent: bytes of their text or,
if tokens are words, how many of them are unknown."""


class OverWindows(nn.Module):
    """Applies a network to the windows of a batch: nats, tokens and extent of each, float32 of shape (rows, 3)."""

    def __init__(self, column: str, network: TokenNetwork, extent_per_token: Sequence[int]) -> None:
        super().__init__()
        self.column = column
        self.network = network
        self.tokens = Tokens()
        self._extent_per_token = Constant(torch.tensor(extent_per_token, dtype=torch.float32))

    def forward(self, batch: Batch) -> Tensor:
        return self.likelihood(self.network.hidden(self.inputs(batch)), batch)

    def inputs(self, batch: Batch) -> Tensor:
        """The worker's tokens from which the network predicts the next ones."""
        return self.tokens.local(batch[self.column].long()[:, :-1])

    def likelihood(self, hidden: Tensor, batch: Batch) -> Tensor:
        """The output, from the input of the network's head."""
        inputs, targets = self.inputs(batch), self.tokens.local(batch[self.column].long()[:, 1:])
        nats = self.network.nats(hidden.flatten(0, 1), targets.flatten())
        predicted = ((inputs != END) | (targets != END)).float()
        extent = self._extent_per_token.to(targets.device)[targets]
        return self.tokens.total(torch.stack([(nats.view(targets.shape) * predicted).sum(1), predicted.sum(1), extent.sum(1)], dim=1))


class TokenFrequencies(Frequencies):
    """Predicts every token by how often it occurs in training, whatever came before: nats, tokens and extent of each window."""

    def __init__(self, column: str, extent_per_token: Sequence[int]) -> None:
        super().__init__("frequencies of tokens", column, len(extent_per_token))
        self._extent_per_token = torch.tensor(extent_per_token, dtype=torch.float64)

    def fit(self, batch: Batch) -> None:
        windows = batch[self._column].long()
        targets = windows[:, 1:]
        self.counts += torch.bincount(targets[_prediction_mask(windows)], minlength=len(self.counts)).numpy()

    def output(self, batch: Batch) -> Tensor:
        windows = batch[self._column].cpu().long()
        targets, predicted = windows[:, 1:], _prediction_mask(windows).double()
        nats = -self.logarithms()[targets] * predicted
        return torch.stack([nats.sum(1), predicted.sum(1), self._extent_per_token[targets].sum(1)], dim=1)


def _prediction_mask(windows: Tensor) -> Tensor:
    """Which tokens of windows are predicted, bool of shape (rows, tokens − 1): all but padding."""
    return (windows[:, :-1] != END) | (windows[:, 1:] != END)

"""The first and the last layer of a language model: vectors of tokens, and how probable each token of the vocabulary is next.

1. Plain: an embedding, and a linear head with the logits of all tokens.
2. `tied`: the head's weight is the embedding (Press and Wolf 2017, "Using the output embedding to improve language models").
3. `cutoffs`: frequent tokens have a logit each, and rarer ones share a cluster's, in which vectors are narrower (Grave et al. 2017,
   "Efficient softmax approximation for GPUs").
4. Both: the vectors of tokens are those of the clusters, too (Baevski and Auli 2019, "Adaptive input representations for neural language
   modeling").
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


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
    head: nn.Linear | AdaptiveSoftmax | None
    """None if the embedding is the head's weight."""

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


@dataclass(frozen=True)
class TokenVocabulary:
    """The tokens of a network, and which weights they share."""

    size: int
    """Number of tokens."""
    tied: bool = False
    cutoffs: tuple[int, ...] = ()

    def embedding(self, width: int) -> nn.Embedding | None:
        """A new first layer of a `TokenNetwork`."""
        return None if self.tied and self.cutoffs else nn.Embedding(self.size, width)

    def head(self, width: int, bias: bool) -> nn.Linear | AdaptiveSoftmax | None:
        """A new last layer of a `TokenNetwork`."""
        if self.cutoffs:
            return AdaptiveSoftmax(width, self.size, list(self.cutoffs), head_bias=bias)
        return None if self.tied else nn.Linear(width, self.size, bias=bias)

"""Windows of tokens: what of them is predicted, and how likely it is, by a network or by the frequencies of tokens.

A window has one token more than it predicts. Token 0 ends a document; a 0 after a 0 is padding and is not predicted.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pipelines.applications.language.networks import AdaptiveSoftmax, TokenNetwork
from pipelines.data.versions.schema import END
from pipelines.tasks.base import Batch
from pipelines.tasks.constants import Constant
from pipelines.tasks.tokens import Tokens
from pipelines.tasks.trivial import Frequencies

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
        self.cross_entropy = nn.CrossEntropyLoss(reduction="none")
        self.logits = nn.Identity()
        """The logits of the network; workers that divide the vocabulary gather them here."""
        self._extent_per_token = Constant(torch.tensor(extent_per_token, dtype=torch.float32))

    def forward(self, batch: Batch) -> Tensor:
        return self.likelihood(self.network.hidden(self.inputs(batch)), batch)

    def inputs(self, batch: Batch) -> Tensor:
        """The worker's tokens from which the network predicts the next ones."""
        return self.tokens.local(batch[self.column].long()[:, :-1])

    def likelihood(self, hidden: Tensor, batch: Batch) -> Tensor:
        """The output, from the input of the network's head."""
        inputs, targets = self.inputs(batch), self.tokens.local(batch[self.column].long()[:, 1:])
        nats = self._nats(hidden, targets.flatten()).view(targets.shape)
        predicted = ((inputs != END) | (targets != END)).float()
        extent = self._extent_per_token.to(targets.device)[targets]
        return self.tokens.total(torch.stack([(nats * predicted).sum(1), predicted.sum(1), extent.sum(1)], dim=1))

    def _nats(self, hidden: Tensor, targets: Tensor) -> Tensor:
        if isinstance(self.network.head, AdaptiveSoftmax):
            return self.network.head.nats(hidden.flatten(0, 1), targets)
        return self.cross_entropy(self.network.logits(hidden).float().flatten(0, 1), targets)


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

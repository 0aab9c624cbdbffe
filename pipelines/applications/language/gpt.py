"""A compact GPT: a transformer that predicts each token from the previous ones.

Pre-norm blocks of attention and a perceptron four times as wide (Radford et al. 2019, "Language models are unsupervised multitask
learners"), with rotary position embeddings (Su et al. 2021), norms without weights, normalised queries and keys, and squared ReLU
(So et al. 2021, "Primer"). With these changes the loss falls faster per step.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.applications.language.vocabulary import TokenNetwork, TokenVocabulary
from pipelines.tasks.tokens import Tokens

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
        self.head = vocabulary.head(width, bias=False)
        self._initialise(layers)

    def hidden(self, tokens: Tensor) -> Tensor:
        turns = self.turns(tokens.shape[1], tokens.device)
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden, *turns)
        return normalise(hidden)

    def embed(self, tokens: Tensor) -> Tensor:
        """The first block's input, shape (rows, tokens, width)."""
        return self.dropout(normalise(self.vectors(tokens)))

    def attentions(self) -> Iterator["Attention"]:
        for block in self.blocks:
            assert isinstance(block, TransformerBlock)
            yield block.attention

    def turns(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the rotary angles, shape (tokens, pairs). They are not buffers, because strategies average buffers."""
        rates = ROTARY_BASE ** -torch.linspace(0, 1, self.pairs + 1, device=device)[:-1]
        angles = torch.outer(self.tokens.positions(length, device), rates)
        return angles.cos(), angles.sin()

    @torch.no_grad()
    def _initialise(self, layers: int) -> None:
        """Standard deviation 0.02, and less for layers that write to the residual stream (Radford et al. 2019)."""
        for name, parameter in self.named_parameters():
            residual = name.endswith(("attention.outputs.weight", "narrow.weight"))
            nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)


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

"""A recurrent language model: an LSTM over the tokens of a window (Hochreiter and Schmidhuber 1997).

Dropout is between layers and not between steps, as in Zaremba et al. 2014, "Recurrent neural network regularization". The state is zero
at the start of each window. Vectors and the head begin as in Merity et al. 2018, "Regularizing and optimizing LSTM language models".
"""

from collections.abc import Sequence

from torch import Tensor, nn

from pipelines.tasks.sequences.vocabulary import TokenNetwork, make_embedding, make_head

_VECTOR_RANGE = 0.1


class LSTM(TokenNetwork):
    """LSTM layers, each as wide as the vectors of tokens."""

    def __init__(
        self, vocabulary: int, context: int, layers: int, width: int, dropout: float, tied: bool = False, cutoffs: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.context = context
        self.embedding = make_embedding(vocabulary, width, tied, cutoffs)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head = make_head(vocabulary, width, tied, cutoffs, bias=True)
        for module in (self.embedding, self.head):
            for parameter in module.parameters() if module is not None else ():
                nn.init.uniform_(parameter, -_VECTOR_RANGE, _VECTOR_RANGE) if parameter.dim() > 1 else nn.init.zeros_(parameter)

    def hidden(self, tokens: Tensor) -> Tensor:
        states, _ = self.recurrent(self.dropout(self.vectors(tokens)))
        return self.dropout(states)

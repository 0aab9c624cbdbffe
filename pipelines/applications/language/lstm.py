"""A recurrent language model: an LSTM over the tokens of a window (Hochreiter and Schmidhuber 1997).

Dropout is between layers and not between steps, as in Zaremba et al. 2014, "Recurrent neural network regularization". The state is zero
at the start of each window. Vectors and the head begin as in Merity et al. 2018, "Regularizing and optimizing LSTM language models".
"""

from torch import Tensor, nn

from pipelines.applications.language.vocabulary import TokenNetwork, TokenVocabulary

_VECTOR_RANGE = 0.1


class LSTM(TokenNetwork):
    """LSTM layers, each as wide as the vectors of tokens."""

    def __init__(self, vocabulary: TokenVocabulary, context: int, layers: int, width: int, dropout: float) -> None:
        """`context` is the maximum number of tokens."""
        super().__init__()
        self.context = context
        self.embedding = vocabulary.embedding(width)
        self.dropout = nn.Dropout(dropout)
        self.recurrent = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.head = vocabulary.head(width, bias=True)
        for module in filter(None, (self.embedding, self.head)):
            for parameter in module.parameters():
                if parameter.dim() > 1:
                    nn.init.uniform_(parameter, -_VECTOR_RANGE, _VECTOR_RANGE)
                else:
                    nn.init.zeros_(parameter)

    def hidden(self, tokens: Tensor) -> Tensor:
        states, _ = self.recurrent(self.dropout(self.vectors(tokens)))
        return self.dropout(states)
